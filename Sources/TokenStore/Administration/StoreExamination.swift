internal import Glibc

/// What a store's files tell while no server has them open, found without changing anything.
package struct StoreExamination: Sendable {
    /// Nil when all is still in the log.
    package let schemaVersion: Int?
    /// The one that a start converts earlier ones to.
    package static let currentSchemaVersion = Schema.version
    /// As of the last time that all of the log was moved into the database.
    package let tokens: Int
    package let databaseBytes: Int
    /// More than 0 after a crash; the next start moves it into the database.
    package let logBytes: Int
    /// The fingerprint of the key ring that it was sealed with; nil in the clear.
    package let keyRing: String?
    /// How often keys have sealed, by their numbers, as of the same time.
    package let seals: [Int: Int64]
    /// Nil when the log can be read to its end.
    package let logDamage: LogDamage?

    /// The copies of damaged logs that are kept in a folder.
    package static func keptLogs(directory: String) -> [String] {
        KeptLog.all(of: directory + "/" + SQLiteTokenStore.fileName)
    }

    /// Looks at the store of a folder; nil when there is none.
    package static func examine(directory: String) throws(StoreOpenError) -> StoreExamination? {
        let path: String
        do throws(LinkError) {
            path = try FollowedPath(directory + "/" + SQLiteTokenStore.fileName).path
        } catch {
            throw .link(error)
        }
        var status = stat()
        guard unsafe stat(path, &status) == 0 else {
            guard errno != ENOENT && errno != ENOTDIR else { return nil }
            throw .directory(path: directory, call: "stat", code: errno)
        }
        let databaseBytes = Int(status.st_size)
        let logBytes = unsafe stat(path + "-wal", &status) == 0 ? Int(status.st_size) : 0
        let logDamage = try Schema.opening(path) { () throws(SQLiteError) in
            try LogExamination.damage(of: PrivateFile.resolved(path) + "-wal")
        }
        let connection = try Schema.opening(path) { () throws(SQLiteError) in
            try SQLiteConnection(path: path, mode: .still)
        }
        let version = try Schema.check(connection, path: path)
        guard version > 1 else {
            return StoreExamination(
                schemaVersion: version == 0 ? nil : version, tokens: 0, databaseBytes: databaseBytes,
                logBytes: logBytes, keyRing: nil, seals: [:], logDamage: logDamage
            )
        }
        return try Schema.opening(path) { () throws(SQLiteError) in
            let select = try SQLiteStatement("SELECT key_ring, tokens FROM store", on: connection)
            let isThere = try select.step()
            let identity = isThere ? select.blob(at: 0) : []
            return StoreExamination(
                schemaVersion: version, tokens: isThere ? select.integer(at: 1) : 0, databaseBytes: databaseBytes,
                logBytes: logBytes, keyRing: identity.isEmpty ? nil : KeyRingExamination.fingerprint(identity),
                seals: identity.isEmpty || version < Schema.version ? [:] : try Schema.seals(of: connection),
                logDamage: logDamage
            )
        }
    }
}

/// What can be told of a key ring to anybody.
package struct KeyRingExamination: Sendable {
    /// The numbers of its keys, the newest last.
    package let numbers: [Int]
    /// Those of an earlier version, whose rows may not be bound to their times.
    package let unbound: [Int]
    /// Tells one ring from another.
    package let fingerprint: String

    /// Looks at a ring; nil when there is no such file.
    package static func examine(_ file: KeyRingFile) throws(KeyRingError) -> KeyRingExamination? {
        guard let ring = try file.load() else { return nil }
        do throws(SealingError) {
            return KeyRingExamination(
                numbers: ring.keys.map(\.number), unbound: ring.keys.filter { !$0.bindsTimes }.map(\.number),
                fingerprint: fingerprint(try ring.identity())
            )
        } catch {
            throw .library(error)
        }
    }

    /// The beginning of a ring's identity, which says nothing of its keys.
    fileprivate static func fingerprint(_ identity: [UInt8]) -> String {
        identity.prefix(8).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }
}

extension DataDirectory {
    /// The process that has a folder locked, or the database that it has a link to; takes no lock itself.
    ///
    /// - Parameter path: The folder.
    /// - Returns: Nil when nobody has it, or it cannot be looked at.
    package static func holder(of path: String) -> Int? {
        if let holder = process("FLOCK", path + "/lock") { return holder }
        guard let database = try? FollowedPath(path + "/" + SQLiteTokenStore.fileName), database.isLink else {
            return nil
        }
        return process("FLOCK", lockFile(ofLinked: database.path))
    }

    /// Another process that has a lock of SQLite's on a database; nil when there is none, or it cannot be told.
    static func process(using database: String) -> Int? {
        process("POSIX", database)
    }

    /// Whoever has a lock on a file, as the kernel lists it (proc(5), `/proc/locks`); takes no lock itself.
    private static func process(_ kind: String, _ path: String) -> Int? {
        var status = stat()
        guard unsafe stat(path, &status) == 0, let file = unsafe fopen("/proc/locks", "re") else {
            return nil
        }
        defer { unsafe fclose(file) }
        var line = [CChar](repeating: 0, count: 512)
        while unsafe fgets(&line, Int32(line.count), file) != nil {
            let text = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
            // As in `1: FLOCK  ADVISORY  WRITE 4711 08:01:131130 0 EOF`; what waits has an arrow behind the number.
            let words = text.split(separator: " ")
            guard words.count > 5, words[1] == kind, words[5].hasSuffix(":\(status.st_ino)") else { continue }
            return Int(words[4])
        }
        return nil
    }
}
