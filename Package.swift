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

/// For what apps build.
///
/// Nothing experimental, and a warning of a later compiler is none of their business; the acceptance tests compile it with warnings
/// as errors.
let ofApps: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    .strictMemorySafety(),
]

/// Without strict memory safety: the code that test macros generate would have to be marked as unsafe.
let tested: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    .treatAllWarnings(as: .error),
]

let package = Package(
    name: "token-cache",
    // Of the client library; the server runs on Linux.
    platforms: [.iOS(.v16), .macOS(.v13), .tvOS(.v16), .visionOS(.v1), .watchOS(.v9)],
    products: [
        // The only product: SwiftPM fetches the packages that any of the products needs, and an app with the client shall
        // fetch none of the server's. `swift build --product token-cache` finds the program nevertheless.
        .library(name: "TokenCacheClient", targets: ["TokenCacheClient"])
    ],
    traits: [
        // Off by default, so that nobody needs libpq who does not use it. As SwiftPM compiles all targets whatever the traits are,
        // the sources of the store on PostgreSQL are empty without it (`#if PostgreSQL`).
        .trait(name: "PostgreSQL", description: "The store on PostgreSQL, for more than one machine; needs libpq."),
        .trait(name: "TokenRefresh", description: "Refreshing tokens at their provider; needs libcurl."),
    ],
    dependencies: [
        // Exact versions, so that the same sources make the same program. No app is bound by them: its package has only the
        // client, which needs none of these.
        .package(url: "https://github.com/apple/swift-argument-parser", exact: "1.8.2"),
        .package(url: "https://github.com/apple/swift-log", exact: "1.16.2"),
    ],
    targets: [
        // C shims: each is a module map and a header, without logic.
        .systemLibrary(name: "CLinux"),
        .systemLibrary(name: "CSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),
        .systemLibrary(name: "COpenSSL", pkgConfig: "openssl", providers: [.apt(["libssl-dev"])]),
        .systemLibrary(name: "CYAML", pkgConfig: "yaml-0.1", providers: [.apt(["libyaml-dev"])]),
        .systemLibrary(name: "CPostgres", pkgConfig: "libpq", providers: [.apt(["libpq-dev"])]),
        .systemLibrary(name: "CCurl", pkgConfig: "libcurl", providers: [.apt(["libcurl4-openssl-dev"])]),

        // The operating system: descriptors, errors, addresses, files, limits, clocks, threads, other programs.
        .target(name: "System", dependencies: ["CLinux"], swiftSettings: strict),

        // Reads JSON text, whatever its meaning.
        .target(name: "JSON", swiftSettings: strict),

        // Counters, histograms and the Prometheus text format; independent of the metrics themselves.
        .target(name: "Metrics", swiftSettings: strict),

        // Hashes, keys, random bytes: what several modules need of OpenSSL besides TLS.
        .target(name: "Cryptography", dependencies: ["COpenSSL"], swiftSettings: strict),

        // The audit log: lines that nobody can change unnoticed, and what verifies them.
        .target(name: "Audit", dependencies: ["Cryptography", "JSON", "System"], swiftSettings: strict),

        // Three modules that do not import one another.
        .target(
            name: "EventLoop", dependencies: ["CLinux", "COpenSSL", "Cryptography", "System"], swiftSettings: strict
        ),
        .target(name: "HTTP", dependencies: ["System"], swiftSettings: strict),
        .target(
            name: "TokenStore", dependencies: ["COpenSSL", "Cryptography", "Metrics", "System"],
            swiftSettings: strict
        ),

        // Signed tokens of other issuers.
        .target(
            name: "JWT", dependencies: ["COpenSSL", "Cryptography", "JSON", "System"], swiftSettings: strict
        ),

        // The stores: each implements the protocols of TokenStore, and does not import the others.
        .target(
            name: "SQLiteStore", dependencies: ["CSQLite", "Cryptography", "Metrics", "System", "TokenStore"],
            swiftSettings: strict
        ),
        .target(
            name: "PostgresStore",
            dependencies: [
                .target(name: "CPostgres", condition: .when(traits: ["PostgreSQL"])), "CLinux",
                "Cryptography", "Metrics", "System", "TokenStore",
            ],
            swiftSettings: strict
        ),

        // Wraps any of them, and has tokens refreshed when they are read.
        .target(
            name: "TokenRefresh",
            dependencies: [
                "Audit", .target(name: "CCurl", condition: .when(traits: ["TokenRefresh"])), "Cryptography", "JSON",
                "System", "TokenStore",
            ],
            swiftSettings: strict
        ),

        // From here on, each module may import those above it.
        .target(
            name: "TokenService",
            dependencies: ["Audit", "Cryptography", "HTTP", "JSON", "JWT", "Metrics", "System", "TokenStore"],
            swiftSettings: strict
        ),
        .target(
            name: "TokenPHPFiles", dependencies: ["JSON", "System", "TokenService", "TokenStore"], swiftSettings: strict
        ),
        .target(
            name: "Settings",
            dependencies: [
                "Audit", .target(name: "CPostgres", condition: .when(traits: ["PostgreSQL"])), "CYAML", "Cryptography",
                "HTTP", "JWT", "System", "TokenService", "TokenStore",
                .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: strict
        ),
        .target(
            name: "Server",
            dependencies: [
                "Audit", "Cryptography", "EventLoop", "HTTP", "JWT", "Metrics", "Settings", "System", "TokenService",
                "TokenStore", .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: strict
        ),
        .target(
            name: "Operations",
            dependencies: [
                "Audit", "Cryptography", "EventLoop", "HTTP", "JWT", "Metrics",
                .target(name: "PostgresStore", condition: .when(traits: ["PostgreSQL"])), "SQLiteStore", "Server",
                "Settings", "System",
                .target(name: "TokenRefresh", condition: .when(traits: ["TokenRefresh"])), "TokenService", "TokenStore",
                .product(name: "Logging", package: "swift-log"),
            ],
            // Embedded in the binary, which then needs no other files.
            resources: [.embedInCode("StatusPage/Resources")],
            swiftSettings: strict
        ),
        .executableTarget(
            name: "token-cache",
            dependencies: [
                "Audit", "Cryptography", "Operations", "Server", "Settings", "System", "TokenPHPFiles", "TokenService",
                "TokenStore",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: strict
        ),

        // The library for apps, on Apple's systems and Linux. It knows nothing of the modules above, nor they of it.
        .target(
            name: "TokenCacheClient", resources: [.copy("PrivacyInfo.xcprivacy")], swiftSettings: ofApps
        ),
        // An example of its use, which README shows and the acceptance tests drive.
        .executableTarget(
            name: "two-devices", dependencies: ["TokenCacheClient"], path: "Tests/Acceptance/two-devices",
            swiftSettings: tested
        ),

        // One test target per module; Tests/Acceptance and Tests/Benchmarks run the built binary.
        .target(name: "TestSupport", path: "Tests/TestSupport", swiftSettings: tested),
        // What every store does, and a store in memory that does it.
        .target(
            name: "StoreConformance", dependencies: ["Cryptography", "TokenStore"], path: "Tests/StoreConformance",
            swiftSettings: tested
        ),
        // Parsers and what they are compared with, for the fuzzer and for tests.
        .target(
            name: "FuzzTargets",
            dependencies: [
                "Audit", "HTTP", "JSON", "JWT", "SQLiteStore", "Settings", "System", "TestSupport", "TokenPHPFiles",
                "TokenService", "TokenStore",
            ],
            path: "Tests/Fuzzing/Targets", swiftSettings: tested
        ),
        .testTarget(
            name: "FuzzingTests", dependencies: ["FuzzTargets", "TestSupport"], path: "Tests/Fuzzing/FuzzingTests",
            swiftSettings: tested
        ),
        .testTarget(name: "SystemTests", dependencies: ["System", "TestSupport"], swiftSettings: tested),
        .testTarget(
            name: "EventLoopTests", dependencies: ["EventLoop", "COpenSSL", "Cryptography", "System", "TestSupport"],
            swiftSettings: tested
        ),
        .testTarget(name: "JSONTests", dependencies: ["JSON"], swiftSettings: tested),
        .testTarget(
            name: "JWTTests",
            dependencies: ["JWT", "COpenSSL", "Cryptography", "Metrics", "System", "TestSupport", "TokenService"],
            swiftSettings: tested
        ),
        .testTarget(name: "MetricsTests", dependencies: ["Metrics"], swiftSettings: tested),
        .testTarget(name: "CryptographyTests", dependencies: ["Cryptography", "TestSupport"], swiftSettings: tested),
        .testTarget(
            name: "AuditTests", dependencies: ["Audit", "Cryptography", "System", "TestSupport"], swiftSettings: tested
        ),
        .testTarget(name: "HTTPTests", dependencies: ["HTTP", "System", "TestSupport"], swiftSettings: tested),
        .testTarget(
            name: "TokenStoreTests",
            dependencies: ["Cryptography", "StoreConformance", "System", "TokenStore", "TestSupport"],
            swiftSettings: tested
        ),
        .testTarget(
            name: "SQLiteStoreTests",
            dependencies: [
                "CSQLite", "Cryptography", "Metrics", "SQLiteStore", "StoreConformance", "System", "TokenStore",
                "TestSupport",
            ],
            swiftSettings: tested
        ),
        .testTarget(
            name: "PostgresStoreTests",
            dependencies: [
                "Cryptography", "Metrics", "PostgresStore", "StoreConformance", "System", "TokenStore", "TestSupport",
            ],
            swiftSettings: tested
        ),
        .testTarget(
            name: "TokenRefreshTests",
            dependencies: ["Cryptography", "StoreConformance", "System", "TestSupport", "TokenRefresh", "TokenStore"],
            swiftSettings: tested
        ),
        .testTarget(
            name: "TokenServiceTests",
            dependencies: [
                "Audit", "Cryptography", "TokenService", "HTTP", "SQLiteStore", "StoreConformance", "System",
                "TokenStore", "TestSupport",
            ],
            swiftSettings: tested
        ),
        .testTarget(
            name: "TokenPHPFilesTests",
            dependencies: ["System", "TokenPHPFiles", "TokenService", "TokenStore", "TestSupport"],
            swiftSettings: tested
        ),
        .testTarget(
            name: "SettingsTests",
            dependencies: ["Settings", "HTTP", "JWT", "TestSupport", "TokenService", "TokenStore"],
            swiftSettings: tested
        ),
        .testTarget(
            name: "ServerTests",
            dependencies: [
                "Audit", "Server", "EventLoop", "HTTP", "Metrics", "Settings", "StoreConformance", "System",
                "TokenService", "TokenStore", "TestSupport",
                .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: tested
        ),
        .testTarget(
            name: "OperationsTests",
            dependencies: [
                "Audit", "EventLoop", "HTTP", "Metrics", "Operations", "Server", "Settings", "StoreConformance",
                "TestSupport", "TokenService", "TokenStore",
            ],
            swiftSettings: tested
        ),
        .testTarget(
            name: "TokenCacheClientTests", dependencies: ["TokenCacheClient", "TestSupport"], swiftSettings: tested
        ),
    ],
    swiftLanguageModes: [.v6]
)

// Only for Tests/Fuzzing/run: without libFuzzer, which `-sanitize=fuzzer` adds, it does not link.
if Context.environment["TOKEN_CACHE_FUZZING"] != nil {
    package.targets += [
        .systemLibrary(name: "CLibFuzzer", path: "Tests/Fuzzing/CLibFuzzer"),
        .executableTarget(
            name: "fuzz", dependencies: ["CLibFuzzer", "FuzzTargets", "TestSupport"], path: "Tests/Fuzzing/Fuzzer",
            swiftSettings: tested
        ),
    ]
}

// Only for Tests/Simulation/run: its C functions take the place of the C library's, and it looks into modules as tests do,
// which a release build does not allow.
if Context.environment["TOKEN_CACHE_SIMULATION"] != nil {
    package.targets += [
        .target(name: "CSimulatedKernel", path: "Tests/Simulation/CSimulatedKernel"),
        .executableTarget(
            name: "simulation",
            dependencies: [
                "CLinux", "CSimulatedKernel", "EventLoop", "HTTP", "Metrics", "Server", "Settings",
                "StoreConformance", "System", "TestSupport", "TokenService", "TokenStore",
                .product(name: "Logging", package: "swift-log"),
            ],
            path: "Tests/Simulation/Simulator", swiftSettings: tested
        ),
    ]
}
