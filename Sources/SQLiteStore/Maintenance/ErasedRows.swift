internal import Cryptography
internal import TokenStore

/// Finds the rows of a backup whose users were erased after it was made.
struct ErasedRows {
    /// One for each file of erasures; none if nobody was ever erased.
    private var searches: [Erasures.Search] = []
    /// A version that all of the erasures have; nil without any.
    let lastVersion: TokenVersion?
    /// Where the tokens lie that were found.
    private(set) var slots: [Int64] = []
    private(set) var fault: CryptographyError?

    init(_ files: [ErasuresFile]) throws(StoreError) {
        var last: TokenVersion?
        for file in files {
            guard let erasures = try file.load() else { continue }
            last = [last, erasures.last].compactMap(\.self).max()
            do throws(CryptographyError) {
                searches.append(try Erasures.Search(erasures))
            } catch {
                throw .sealing(SealingError(error))
            }
        }
        lastVersion = last
    }

    /// Remembers a token if its user was erased.
    mutating func note(_ token: Token, _ row: StoredRow) {
        if isErased(token.id, row.version) { slots.append(row.slot) }
    }

    /// Whether a user was erased after something was written.
    mutating func isErased(_ user: [UInt8], _ version: TokenVersion) -> Bool {
        do throws(CryptographyError) {
            for index in searches.indices where try searches[index].finds(user, writtenAs: version) { return true }
        } catch {
            fault = error
        }
        return false
    }
}

/// What is left of a backup.
struct Remains {
    var tokens = 0
    var erasedUsers = 0
    var endedSessions = 0
    /// Of the keys that its tokens are sealed with.
    var keyNumbers: Set<Int> = []
}
