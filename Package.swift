// swift-tools-version: 6.2

import PackageDescription

let strict: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    .enableExperimentalFeature("Lifetimes"),
    .strictMemorySafety(),
    .treatAllWarnings(as: .error),
]

/// Tests meet macros and fixtures whose unsafety is not ours to mark.
let tested: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    .treatAllWarnings(as: .error),
]

let package = Package(
    name: "token-cache",
    targets: [
        // C shims: a module map and a header each, no logic.
        .systemLibrary(name: "CLinux"),
        .systemLibrary(name: "CSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),

        // Three modules that know nothing of one another.
        .target(name: "EventLoop", dependencies: ["CLinux"], swiftSettings: strict),
        .target(name: "HTTP", swiftSettings: strict),
        .target(name: "TokenStore", dependencies: ["CSQLite", "CLinux"], swiftSettings: strict),

        // Imports run one way from here down.
        .target(name: "TokenService", dependencies: ["HTTP", "TokenStore"], swiftSettings: strict),
    ],
    swiftLanguageModes: [.v6]
)
