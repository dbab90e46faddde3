/// What an operator decides about a store.
package struct StoreOptions: Sendable {
    /// Whether rows are sealed.
    package var isSealed = true
    /// Where the key ring is.
    package var keyRing: KeyRingFile
    package var retention = Retention()
    /// Tokens beyond which new ids are refused; nil for no limit.
    package var tokenLimit: Int?
    /// Bytes of the database, without what is free in it, beyond which new ids are refused; nil for no limit.
    package var byteLimit: Int?

    /// Bytes of tokens that may wait to be written; beyond it writes fail at once.
    package var queueLimit = 128 << 20
    /// How long the disk may take for one write; beyond it those that wait behind it fail, and further ones at once.
    package var queueTime = Duration.seconds(10)
    /// Whether a WAL is used whose end is damaged, and with it what was acknowledged is lost.
    package var acceptsDamagedWAL = false

    package init(keyRing: KeyRingFile) {
        self.keyRing = keyRing
    }
}
