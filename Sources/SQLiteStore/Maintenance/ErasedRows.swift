internal import Cryptography
internal import TokenStore

/// Finds the rows of a backup whose users were erased after it was made.
struct ErasedRows {
    /// Nil if nobody was ever erased.
    private var search: Erasures.Search?
    /// A version that all of the erasures have; nil without any.
    let lastVersion: TokenVersion?
    /// Where the tokens lie that were found.
    private(set) var slots: [Int64] = []
    private(set) var fault: CryptographyError?

    init(_ file: ErasuresFile) throws(StoreError) {
        let erasures = try file.load()
        lastVersion = erasures?.last
        do throws(CryptographyError) {
            search = try erasures.map { (erasures) throws(CryptographyError) in try Erasures.Search(erasures) }
        } catch {
            throw .sealing(SealingError(error))
        }
    }

    /// Remembers a token if its user was erased.
    mutating func note(_ token: Token, _ row: StoredRow) {
        if isErased(token.id, row.version) { slots.append(row.slot) }
    }

    /// Whether a user was erased after something was written.
    mutating func isErased(_ user: [UInt8], _ version: TokenVersion) -> Bool {
        do throws(CryptographyError) {
            return try search?.finds(user, writtenAs: version) ?? false
        } catch {
            fault = error
            return false
        }
    }
}

/// What is left of a backup.
struct Remains {
    var tokens = 0
    var erasedUsers = 0
    var endedSessions = 0
}
