import Foundation
import SQLiteStore
import Synchronization
import TokenStore

extension FuzzTarget {
    /// A database, its WAL and a backup with bytes that were changed: no id ever has another token than one that was stored
    /// under it, and a store whose verification finds nothing has all tokens of one commit.
    ///
    /// An input is a list of changes, six bytes each: the file, three bytes of its place, what to do, and a byte.
    static let databases = FuzzTarget(
        "databases", words: ["\0\0", "\u{1}\0", "\0\u{1}", "\u{3}", "\u{5}", "\u{7f}"], mutationCount: 100
    ) { input in
        var (database, wal) = (SampleStore.database, SampleStore.wal)
        for start in stride(from: 0, to: input.count - 5, by: 6) {
            let change = FileChange(input[start..<start + 6])
            if change.isOfWAL { change.apply(to: &wal) } else { change.apply(to: &database) }
        }
        try DamagedStore.checkBackup(database)
        try DamagedStore.checkStore(database, wal)
    }
}

/// A change to a file, such as disks, file systems and attackers make.
private struct FileChange {
    let isOfWAL: Bool
    private let place: Int
    private let action, byte: UInt8

    private static let sector = 512
    private static let page = 2_048

    init(_ bytes: ArraySlice<UInt8>) {
        let bytes = Array(bytes)
        isOfWAL = !bytes[0].isMultiple(of: 2)
        place = Int(bytes[1]) << 16 | Int(bytes[2]) << 8 | Int(bytes[3])
        (action, byte) = (bytes[4], bytes[5])
    }

    func apply(to file: inout [UInt8]) {
        guard !file.isEmpty else { return }
        let place = place % file.count
        switch action % 8 {
        case 0: file[place] = byte
        case 1: file[place] ^= 1 << (byte % 8)
        case 2: file[place] &+= byte
        // A sector that was never written.
        case 3: for index in place..<min(place + Self.sector, file.count) { file[index] = byte }
        // One that was written to a wrong place.
        case 4:
            let source = Int(byte) * Self.sector % file.count
            let count = min(Self.sector, file.count - max(place, source))
            file.replaceSubrange(place..<place + count, with: Array(file[source..<source + count]))
        // Pages that have changed their places.
        case 5:
            let (first, second) = (
                place / Self.page * Self.page, Int(byte) * Self.page % file.count / Self.page * Self.page
            )
            for index in 0..<Self.page where max(first, second) + index < file.count {
                file.swapAt(first + index, second + index)
            }
        case 6: file.removeLast(file.count - place)
        default: file += [UInt8](repeating: byte, count: place % (4 * Self.page))
        }
    }
}

private enum DamagedStore {
    static func checkBackup(_ database: [UInt8]) throws {
        let folder = SampleStore.folder("backup", database: database)
        let path = SampleStore.databasePath(in: folder)
        let options = StoreOptions(keyRing: SampleStore.keyRing(in: folder))
        let verifier = SQLiteStoreProvider(directory: folder, options: options)
        guard let found = try? verifier.verify(path, { _ in }), found.isSound else { return }
        try compare(found.tokens, SampleStore.ids.count, "the number of tokens in a backup that is sound")
        try compare(Files.read(path), database, "a backup that was verified")
        let (tokens, _) = try contents(of: folder)
        try compare(round(of: tokens), SampleStore.rounds[0], "the tokens of a backup that is sound")
    }

    static func checkStore(_ database: [UInt8], _ wal: [UInt8]) throws {
        let folder = SampleStore.folder("damaged", database: database, wal: wal)
        // A store that is refused may say so with any error.
        let (tokens, isSound): ([String: [UInt8]?], Bool)
        do { (tokens, isSound) = try contents(of: folder) } catch let error as Mismatch { throw error } catch { return }
        for (id, info) in tokens {
            let isOfID = SampleStore.rounds.contains { info == SampleStore.info(of: id, in: $0) }
            try require(info == nil || isOfID, "\(id) has the token \(info?.text.string ?? "")")
        }
        try require(!isSound || round(of: tokens) != nil, "a store that is sound has lost some tokens: \(tokens)")
    }

    /// The one of the three times that tokens were stored of which all of them are; nil if there is none.
    private static func round(of tokens: [String: [UInt8]?]) -> String? {
        SampleStore.rounds.first { round in
            tokens.allSatisfy { $0.value == SampleStore.info(of: $0.key, in: round) }
        }
    }

    /// All tokens as clients get them, and whether the operator was told nothing.
    ///
    /// - Throws: What a store says that refuses to open, or to be verified.
    private static func contents(of folder: String) throws -> (tokens: [String: [UInt8]?], isSound: Bool) {
        let warning = Warning()
        let store = try SampleStore.open(folder) { event in
            if case .madeStoreBesideRing = event { warning.isGiven.store(true, ordering: .relaxed) }
        }
        defer { store.close() }
        let administrator = store.administrator
        let found = try wait {
            var tokens: [String: [UInt8]?] = [:]
            var isReadable = true
            for id in SampleStore.ids {
                do {
                    tokens[id] = .some(try await administrator.handle.fetch(Array(id.utf8)))
                } catch {
                    (tokens[id], isReadable) = (.some(nil), false)
                }
            }
            let verification = try? await administrator.verify { _ in }
            return (tokens, isReadable && verification?.isSound ?? false)
        }
        try checkWriting(to: administrator, isSound: found.1)
        return (found.0, found.1 && !warning.isGiven.load(ordering: .relaxed))
    }

    private final class Warning: Sendable {
        let isGiven = Atomic(false)
    }

    /// A token that was stored after the damage is either there, or the write has failed.
    ///
    /// In a damaged database it may be lost: SQLite relies on the order of the rows in a page, and does not find again what it
    /// has added to a page that belongs elsewhere. Verification finds such damage.
    private static func checkWriting(to administrator: any StoreAdministrator, isSound: Bool) throws {
        let token = Token(id: Array("new".utf8), info: Array("a new token".utf8))
        let found = try wait { () -> [UInt8]? in
            guard case .success = await administrator.handle.store([(token, nil)], keepsNewer: false)[0] else {
                return token.info
            }
            do { return try await administrator.handle.fetch(token.id) } catch { return token.info }
        }
        guard isSound else { return }
        try compare(found?.text.string, token.info.text.string, "a token that was just stored")
    }
}
