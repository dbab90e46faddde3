/// An operator's settings of a store.
package struct StoreOptions: Sendable {
    /// Whether rows are sealed.
    package var isSealed = true
    /// Where the key ring is.
    package var keyRing: KeyRingFile
    package var retention = Retention()
    /// Tokens beyond which new ids are refused; nil for no limit.
    package var tokenLimit: Int?
    /// Bytes of the database without its free pages, beyond which new ids are refused; nil for no limit.
    package var byteLimit: Int?

    /// Bytes of tokens that may wait to be written; further writes fail at once.
    package var queueLimit = 128 << 20
    /// How long one write to the disk may take; after that, writes that wait for it fail, and further ones fail at
    /// once.
    package var queueTime = Duration.seconds(10)
    /// Whether to use a damaged WAL, and thereby lose acknowledged writes.
    package var acceptsDamagedWAL = false
    /// Whether a store whose database cannot be reached is opened nevertheless, and used as soon as the database is there: for
    /// a server, which answers its clients meanwhile that it cannot serve them.
    package var waitsForDatabase = false

    package init(keyRing: KeyRingFile) {
        self.keyRing = keyRing
    }
}
