import Cryptography

@testable import SQLiteStore
@testable import TokenStore

/// Sealed values as versions up to schema 3 wrote them.
enum EarlierForm {
    static func seal(
        _ token: Token, rowKey: [UInt8], keyNumber: UInt8, key: SecretKey
    ) throws(SealingError) -> [UInt8] {
        var value: [UInt8] = [1]
        let nonce = (0..<TokenCipher.nonceLength).map { _ in UInt8.random(in: 0...255) }
        let head = [UInt8(token.id.count >> 8), UInt8(token.id.count & 0xff)] + token.id
        let associated = [1, 0, 0, 0, keyNumber] + rowKey
        try TokenCipher(key, .sealing).seal(
            head.span, token.info.span, nonce: nonce.span, associated: associated.span, into: &value)
        return value
    }

    /// Makes the rows and the ring of a folder's store, which nobody has open, ones of an earlier version; the store's first
    /// key has sealed all of them.
    static func setBack(_ data: String) throws {
        let file = KeyRingFile(path: data + "/keys", credentials: nil, directory: data)
        guard let ring = try file.load() else { return }
        let connection = try SQLiteConnection(path: data + "/tokens.db", mode: .readWrite)
        let select = try SQLiteStatement(
            "SELECT slot, key, value, key_number, written_at, expires_at FROM token", on: connection)
        let update = try SQLiteStatement("UPDATE token SET value = ?1 WHERE slot = ?2", on: connection)
        var coder = RowCoder(Sealing(.sealed(ring)))
        try connection.execute("BEGIN")
        var values: [(slot: Int64, value: [UInt8])] = []
        while try select.step() {
            let (slot, key) = (Int64(select.integer(at: 0)), select.blob(at: 1))
            let times = RowTimes(writtenAt: Int64(select.integer(at: 4)), expiresAt: select.optionalInteger(at: 5))
            let token = try select.withBlob(at: 2) { (value) throws(SealingError) in
                try coder.token(of: value, keyNumber: select.integer(at: 3), key: key, slot: slot, times: times)
            }
            values.append((slot, try seal(token, rowKey: key, keyNumber: 1, key: ring.keys[0].key)))
        }
        select.reset()
        for (slot, value) in values {
            try update.bind(slot, at: 2)
            try update.withBinding(value, at: 1) { () throws(SQLiteError) in _ = try update.step() }
        }
        try connection.execute("COMMIT")
        _ = try connection.checkpoint(.truncate, waiting: 0)
        let keys = ring.keys.map { key in
            KeyRing.NumberedKey(number: key.number, createdAt: key.createdAt, key: key.key, bindsTimes: false)
        }
        try file.save(KeyRing(index: ring.index, keys: keys))
    }
}
