import Foundation
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

/// Rows that a conversion sorts, in memory and in files without names.
@Suite struct RowSorterTests {
    private let folder: TemporaryDirectory
    private var path: String { folder.path + "/rows" }
    private let index = ObjectIdentifier(RowSorterTests.self)

    init() throws {
        folder = try TemporaryDirectory()
    }

    private func rows(_ count: Int, valueBytes: Int, seed: UInt64) -> [Row] {
        var generator = SeededGenerator(seed: seed)
        func bytes(_ most: Int) -> [UInt8] {
            Array(repeating: .random(in: 0...255, using: &generator), count: .random(in: 0...most, using: &generator))
        }
        return (0..<count).map { number in
            let expiresAt = Bool.random(using: &generator) ? Int64.random(in: 0...1 << 40, using: &generator) : nil
            var row = Row(
                key: RowKey(
                    bytes: bytes(70), hashPrefix: [0, .max, .random(in: 0...(.max), using: &generator)][min(number, 2)]),
                value: bytes(valueBytes), keyNumber: .random(in: 0...9, using: &generator),
                times: RowTimes(writtenAt: .random(in: -1...1 << 40, using: &generator), expiresAt: expiresAt),
                id: bytes(9), index: index)
            if Bool.random(using: &generator) {
                row.version = TokenVersion(rawValue: .random(in: 0...99, using: &generator))
            }
            return row
        }
    }

    private static func key(of row: Row) -> String {
        "\(row.key.hashPrefix) \(row.key.bytes) \(row.value.count) \(row.value.first ?? 0) \(row.value.last ?? 0) \(row.keyNumber) \(row.times) \(String(describing: row.version))"
    }

    private func sorted(_ rows: [Row], expecting bytes: Int, batchBytes: Int) throws -> [[Row]] {
        var sorter = try RowSorter(ofDatabase: bytes, at: path, isSecret: false, batchBytes: batchBytes)
        for row in rows { try sorter.add(row) }
        var batches: [[Row]] = []
        while let batch = try sorter.nextBatch(index: index) { batches.append(batch) }
        return batches
    }

    @Test(
        "all rows come back whole and in the order of their slots",
        arguments: [
            // In memory, in a few files, in many, and with values larger than what is read at once.
            (1_000, 300, 1 << 30), (1_000, 300, 100_000), (4_000, 300, 30_000), (9, 3 << 20, 1 << 20), (0, 0, 1),
        ])
    func order(_ count: Int, _ valueBytes: Int, _ batchBytes: Int) throws {
        let rows = rows(count, valueBytes: valueBytes, seed: UInt64(batchBytes))
        let bytes = rows.map(\.value.count).reduce(rows.count * 60, +)
        let batches = try sorted(rows, expecting: bytes, batchBytes: batchBytes)
        let found = batches.flatMap { $0 }
        #expect((found.map(Self.key).sorted() == rows.map(Self.key).sorted()) == true)
        #expect(found.allSatisfy { $0.index == index })
        let slots = found.map(\.key.firstSlot)
        #expect((slots == slots.sorted()) == true)
        #expect((batches.count > 1) == (batchBytes < 1 << 30 && count > 0))
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path).isEmpty)
    }

    @Test func `more rows than expected are sorted batch by batch`() throws {
        let rows = rows(3_000, valueBytes: 400, seed: 3)
        // A few files, each of which gets the rows of some ten batches.
        let batches = try sorted(rows, expecting: 15_000, batchBytes: 50_000)
        #expect(batches.count > 20)
        #expect(batches.flatMap { $0 }.map(Self.key).sorted() == rows.map(Self.key).sorted())
        for batch in batches {
            #expect(batch.map(\.value.count).reduce(batch.count * 300, +) < 60_000)
            #expect(batch.map(\.key.firstSlot) == batch.map(\.key.firstSlot).sorted())
        }
    }

    /// Opens the files again that this process has open in a folder.
    static func openFiles(in folder: String, named name: String) throws -> [FileHandle] {
        try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").map { "/proc/self/fd/" + $0 }.compactMap {
            let target = try? FileManager.default.destinationOfSymbolicLink(atPath: $0)
            return target == folder + "/" + name ? FileHandle(forUpdatingAtPath: $0) : nil
        }
    }

    private func openFile() throws -> FileHandle {
        try #require(Self.openFiles(in: folder.path, named: "rows (deleted)").first)
    }

    @Test("a file that the disk has cut off or mixed up is an error", arguments: [0, 100, 5_000])
    func cutOff(_ left: Int) throws {
        for change in ["cut", "zeros", "ones"] {
            let file = try RowFile(at: path, isSecret: false)
            // Enough for several writes, so that something is in the file before it is read.
            let rows = rows(2_000, valueBytes: 300, seed: 4)
            for row in rows { try file.append(row) }
            let handle = try openFile()
            let size = try handle.seekToEnd()
            #expect(size > 5_000)
            if change == "cut" {
                try handle.truncate(atOffset: UInt64(left))
            } else {
                try handle.seek(toOffset: UInt64(left))
                try handle.write(contentsOf: Data(repeating: change == "ones" ? 255 : 0, count: Int(size) - left))
            }
            let error = #expect(throws: SQLiteError.self) { while try file.next(index: index) != nil {} }
            #expect(error.map { "\($0)".contains("rows to be sorted") } == true, "\(change)")
        }
    }

    @Test("rows of another file are an error, and rows from another place", arguments: [true, false])
    func misplaced(isOfOther: Bool) throws {
        let length = 8 * 8 + 4 + 1 + 8
        func fill(_ file: RowFile) throws {
            // Enough for more than one write, so that something is in the file before it is read.
            for number in 1_000..<3_000 {
                let row = Row(
                    key: RowKey(bytes: Array("\(number)".utf8)), value: [1], keyNumber: 1,
                    times: RowTimes(writtenAt: 1, expiresAt: nil), id: [], index: index)
                try file.append(row)
            }
        }
        let other = try RowFile(at: path, isSecret: false)
        try fill(other)
        let foreign = try #require(try openFile().readToEnd())
        let file = try RowFile(at: path, isSecret: false)
        try fill(file)
        for handle in try Self.openFiles(in: folder.path, named: "rows (deleted)") {
            let own = try #require(try handle.readToEnd())
            guard own != foreign else { continue }
            let place = 100 * length
            try handle.seek(toOffset: UInt64(place))
            let source = isOfOther ? foreign[place...] : own[(place + length)...]
            try handle.write(contentsOf: source.prefix(length))
        }
        var found = 0
        #expect(throws: SQLiteError.self) { while try file.next(index: index) != nil { found += 1 } }
        #expect(found == 100)
        while try other.next(index: index) != nil { found += 1 }
        #expect(found == 2_100)
    }
}
