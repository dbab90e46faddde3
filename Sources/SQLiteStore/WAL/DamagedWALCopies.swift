internal import Glibc
internal import System
internal import TokenStore

/// Copies of damaged WALs, kept beside the WAL because commits that SQLite does not read may be recovered from them by hand.
enum DamagedWALCopies {
    private static let mark = ".damaged-"
    /// The suffix of a copy's name until the copy is complete.
    static let partialSuffix = ".keeping"

    /// The copies beside a database.
    static func all(of database: String) -> [String] {
        let path = Path.resolved(database) + "-wal"
        let (folder, prefix) = (Path.folder(of: path), path.split(separator: "/").last.map { "\($0)\(mark)" })
        guard let prefix, let names = Folder.names(in: folder) else { return [] }
        return names.filter { $0.hasPrefix(prefix) }.map { folder + "/" + $0 }.sorted()
    }

    /// Keeps a synced copy of a database's WAL, unless there is one already.
    ///
    /// - Returns: The copy's path.
    static func keep(of database: String) throws(StoreError) -> String {
        let path = Path.resolved(database) + "-wal"
        if let copy = all(of: database).first(where: { haveSameContent(path, $0) }) { return copy }
        var now = time(nil)
        var parts = unsafe tm()
        unsafe gmtime_r(&now, &parts)
        var text = [CChar](repeating: 0, count: 32)
        _ = unsafe strftime(&text, text.count, "%Y%m%dT%H%M%SZ", &parts)
        let name = path + mark + String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        var (copy, number) = (name, 1)
        // Another WAL was kept in the same second.
        while FileStatus.exists(copy) {
            number += 1
            copy = "\(name)-\(number)"
        }
        // A copy gets its final name when it is complete.
        let partial = path + partialSuffix
        defer { _ = unsafe unlink(partial) }
        try PrivateFile.copy(path, to: partial)
        try PrivateFile.synchronize(partial)
        try PrivateFile.rename(partial, to: copy)
        return copy
    }

    private static func haveSameContent(_ first: String, _ second: String) -> Bool {
        guard FileStatus.size(of: first) == FileStatus.size(of: second) else { return false }
        do throws(SystemError) {
            let one = try FileDescriptor(opening: first, O_RDONLY)
            let other = try FileDescriptor(opening: second, O_RDONLY)
            var offset = 0
            while true {
                let bytes = try BlockingIO.read(from: one.number, at: offset, count: 1 << 20)
                guard try BlockingIO.read(from: other.number, at: offset, count: 1 << 20) == bytes else { return false }
                if bytes.isEmpty { return true }
                offset += bytes.count
            }
        } catch {
            return false
        }
    }
}
