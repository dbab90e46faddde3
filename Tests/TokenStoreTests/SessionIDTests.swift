import Testing
import TokenStore

@Suite struct SessionIDTests {
    @Test func `an id is never taken for an option of a command, and its text can be read back`() throws {
        for _ in 0..<2_000 {
            let id = try SessionID.random()
            #expect(id.description.utf8.count == 22 && !id.description.hasPrefix("-"))
            #expect(SessionID(id.description) == id)
        }
    }
}
