#if TokenRefresh
import StoreConformance
import TestSupport
import Testing
import TokenStore

@testable import TokenRefresh

@Suite struct RefreshingStoreTests {
    private static func store(_ inner: MemoryStore, hides: Bool = false) -> RefreshingStore {
        // Nothing listens there.
        let provider = RefreshProvider(
            .oauth2Post, url: "http://127.0.0.1:1/token", clientID: "app", readSecret: { nil })
        return RefreshingStore(
            inner, provider, patience: .milliseconds(100), hidesRefreshTokens: hides, report: { _ in })
    }

    private static func options() -> StoreOptions {
        StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: "/nowhere"))
    }

    @Test(arguments: StoreConformance.behaviours, [false, true])
    func `a store that refreshes does what every store does`(
        _ behaviour: StoreConformance.Behaviour, readsLater: Bool
    ) async throws {
        let disk = MemoryDisk()
        try await behaviour.check { change in
            var options = Self.options()
            change(&options)
            return Self.store(MemoryStore(disk, options: options, readsLater: readsLater), hides: readsLater)
        }
    }

    /// The outcome of a read as a client's, with a limit.
    private func fetch(_ handle: WaitingHandle) async throws -> String {
        switch try await handle.fetch(Array("a".utf8), upTo: 16 << 10, if: nil) {
        case .found(let info, _, let until, _):
            String(decoding: info, as: UTF8.self) + (until == .max ? "" : " until \(until)")
        case .unrefreshed(let info, _, let advice): String(decoding: info, as: UTF8.self) + " \(advice)"
        case .nothing: "nothing"
        case .longer: "longer"
        }
    }

    @Test(arguments: [false, true])
    func `a read ends when the token is due, and one of an expired token says what to do`(readsLater: Bool) async throws
    {
        let store = Self.store(MemoryStore(MemoryDisk(), options: Self.options(), readsLater: readsLater))
        let handle = try await WaitingHandle.open(store)
        let plain = #"{"a":1}"#
        try await handle.put(plain, under: "a")
        #expect(try await fetch(handle) == plain)
        let fresh = #"{"access_token":"a","refresh_token":"r","expires_at":4000000000,"expires_in":1000}"#
        try await handle.put(fresh, under: "a")
        #expect(try await fetch(handle) == fresh + " until 3999999900")
        // The provider cannot be reached: the mark comes and goes.
        let expired = #"{"access_token":"a","refresh_token":"r","expires_in":0}"#
        try await handle.put(expired, under: "a")
        #expect(try await fetch(handle).hasSuffix(" later"))
        try await eventually { try await handle.get("a") == expired }
        #expect(store.metrics.refresh?.counts.failed["unreachable"] == 1)
        // Another server's mark stands.
        let provider = RefreshProvider(.oauth2Post, url: "", clientID: "app", readSecret: { nil })
        let token = try #require(RefreshableToken(Array(expired.utf8), writtenAt: 0, by: provider))
        let marked = String(decoding: token.marked(by: "another"), as: UTF8.self)
        try await handle.put(marked, under: "a")
        #expect(try await fetch(handle) == marked + " later")
        // Who stores the same tokens whatever is stored does not know of it.
        try await handle.put(expired, under: "a")
        #expect(try await handle.get("a") == marked)
        let other = expired.replacing("\"r\"", with: "\"s\"")
        try await handle.put(other, under: "a")
        #expect(try await handle.get("a") == other)
        let spent = String(decoding: token.markedAsSpent, as: UTF8.self)
        try await handle.put(spent, under: "a")
        #expect(try await fetch(handle) == spent + " login")
        try await handle.put(expired, under: "a")
        #expect(try await handle.get("a") == spent)
        store.finishWrites()
        store.close()
    }
}
#endif
