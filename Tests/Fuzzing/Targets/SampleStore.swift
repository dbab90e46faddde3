import Foundation
import SQLiteStore
import Synchronization
import TokenStore

/// A sealed store as a crash leaves it: each id was stored three times, the first time in the database, then in the WAL.
///
/// It lies in `Tests/Fuzzing/store`, because a new one would have other random bytes, and an input would change others of
/// them in each process. `WRITE_STORE=1 swift test --filter CorpusTests` makes it again.
package enum SampleStore {
    private static let databaseName = "tokens.db"
    private static let walName = databaseName + "-wal"
    private static let ringName = "keys"
    static let ids = (0..<10).map { "id\($0)" }
    static let rounds = ["first", "second", "third"]

    /// Two of the token infos take further pages.
    static func info(of id: String, in round: String) -> [UInt8] {
        let isLong = id == ids[1] || id == ids[6]
        return Array("\(round) token of \(id) ".utf8) + [UInt8](repeating: 0x2e, count: isLong ? 3_000 : 20)
    }

    static let database = bytes(of: databaseName)
    static let wal = bytes(of: walName)
    private static let ring = bytes(of: ringName)

    private static let source = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .appending(path: "store").path()

    private static func bytes(of name: String) -> [UInt8] {
        let bytes = Files.read(source + "/" + name)
        precondition(!bytes.isEmpty, "\(source)/\(name) is there")
        return bytes
    }

    /// Makes a data folder with the key ring, a database and a WAL.
    ///
    /// - Returns: Its path; a folder of the same name is replaced.
    static func folder(_ name: String, database: [UInt8], wal: [UInt8] = []) -> String {
        let folder = Files.emptyFolder(name)
        Files.write(ring, to: folder + "/" + ringName)
        Files.write(database, to: databasePath(in: folder))
        if !wal.isEmpty { Files.write(wal, to: folder + "/" + walName) }
        return folder
    }

    static func databasePath(in folder: String) -> String { folder + "/" + databaseName }

    static func keyRing(in folder: String) -> KeyRingFile {
        KeyRingFile(path: "", credentials: nil, directory: folder)
    }

    static func open(
        _ folder: String, report: @escaping @Sendable (StoreEvent) -> Void = { _ in }
    ) throws -> SQLiteTokenStore {
        var options = StoreOptions(keyRing: keyRing(in: folder))
        // Otherwise a write fails that a busy machine holds up for long.
        options.queueTime = .seconds(3_600)
        options.report = report
        return try SQLiteTokenStore(in: DataDirectory(path: folder, creates: true), options: options)
    }

    /// What an operator is told when it is opened.
    package static func eventsOfOpening() throws -> [String] {
        let events = Mutex<[String]>([])
        // Which ends the closure that captures the events.
        do {
            let store = try open(folder("sample", database: database, wal: wal)) { event in
                events.withLock { $0.append("\(event)") }
            }
            store.close()
        }
        return events.withLock(\.self)
    }

    /// Makes its files again.
    package static func make() throws {
        let folder = Files.emptyFolder("sample")
        var store = try open(folder)
        try fill(store, rounds[0])
        // Which checkpoints the WAL and removes it.
        store.close()
        store = try open(folder)
        for round in rounds.dropFirst() { try fill(store, round) }
        try FileManager.default.createDirectory(atPath: source, withIntermediateDirectories: true)
        for name in [databaseName, walName, ringName] {
            Files.write(Files.read(folder + "/" + name), to: source + "/" + name)
        }
        store.close()
    }

    private static func fill(_ store: SQLiteTokenStore, _ round: String) throws {
        let administrator = store.administrator
        let tokens = ids.map { (Token(id: Array($0.utf8), info: info(of: $0, in: round)), Int64?.none) }
        for outcome in try wait(for: { await administrator.handle.store(tokens, keepsNewer: false) }) {
            try outcome.get()
        }
    }
}
