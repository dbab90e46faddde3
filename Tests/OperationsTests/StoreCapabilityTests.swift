import StoreConformance
import Testing
import TokenStore

@testable import Operations

/// The answers to operators from a store without optional capabilities.
struct StoreCapabilityTests {
    private let store = AuditedStore(
        MemoryStore(
            MemoryDisk(), options: StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: ""))
        ).administrator)

    private func refusal<Request: StoreRequest>(of request: Request) async -> StoreError? {
        do throws(StoreError) {
            _ = try await request.answer(store) { _ in }
            return nil
        } catch {
            return error
        }
    }

    @Test func `a request for a capability that the store lacks is refused with the reason`() async {
        #expect(await refusal(of: BackUpStore(path: "/backup")) == .refused(StoreCapability.backup.absence))
        #expect(await refusal(of: VerifyStore()) == .refused(StoreCapability.verification.absence))
        #expect(await refusal(of: ListKeys()) == .refused(StoreCapability.keys.absence))
        #expect(await refusal(of: AddKey()) == .refused(StoreCapability.keys.absence))
        #expect(await refusal(of: RetireKey(number: 1)) == .refused(StoreCapability.keys.absence))
        #expect(await refusal(of: RekeyStore()) == .refused(StoreCapability.keys.absence))
    }

    @Test func `requests that every store supports are answered`() async throws {
        let entry = StoreTokens.Entry(id: "a", tokenInfo: "1")
        #expect(try await StoreTokens(tokens: [entry]).answer(store) { _ in }.stored == 1)
        #expect(try await FetchToken(id: "a").answer(store) { _ in }.tokenInfo == "1")
        #expect(try await StatisticsOfStore().answer(store) { _ in }.tokens == 1)
        #expect(try await RemoveTokens(ids: ["a"]).answer(store) { _ in }.removed == 1)
    }
}
