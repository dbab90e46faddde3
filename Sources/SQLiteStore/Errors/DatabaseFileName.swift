/// The names of the files that a store consists of.
package enum DatabaseFileName {
    /// Of the database, in the data folder.
    package static let database = "tokens.db"
    /// Of the database's files in the data folder; some exist only while a server runs.
    package static let all = ["", "-wal", "-shm", checkSuffix].map { database + $0 }
    /// Of the file that `CheckMark` makes.
    static let checkSuffix = "-check"
}
