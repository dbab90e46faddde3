import Foundation
import TestSupport
import Testing

@testable import SQLiteStore

/// Reading ahead what an interior page leads to.
@Suite struct ChildReadAheadTests {
    private static let pageSize = 512
    private let folder: TemporaryDirectory
    private let path: String

    /// Makes a database whose rows are in random order, with trees of several levels: a table and an index.
    init() throws {
        folder = try TemporaryDirectory()
        path = folder.path + "/pages.db"
        let connection = try SQLiteConnection(path: path, mode: .readWriteCreate)
        try connection.execute("PRAGMA page_size = \(Self.pageSize)")
        try connection.execute(
            """
            CREATE TABLE one (slot INTEGER PRIMARY KEY, value BLOB); CREATE INDEX other ON one (value);
            WITH RECURSIVE number (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM number WHERE n < 5000)
            INSERT INTO one SELECT n * 7919 % 10007, randomblob(50) FROM number
            """
        )
    }

    /// The pages of the file, the first of them with number 1.
    private func pages() throws -> [[UInt8]] {
        let bytes = [UInt8](try Data(contentsOf: URL(filePath: path)))
        return stride(from: 0, to: bytes.count, by: Self.pageSize).map { Array(bytes[$0..<($0 + Self.pageSize)]) }
    }

    /// The numbers of the pages with which trees begin; the first one's is the schema's.
    private func roots() throws -> [Int] {
        let connection = try SQLiteConnection(path: path, mode: .readOnly)
        return [1]
            + (try ["one", "other"].map {
                try connection.integer("SELECT rootpage FROM sqlite_schema WHERE name = '\($0)'")
            })
    }

    @Test func `each page is the child of one interior page, or the root of a tree`() throws {
        let pages = try pages()
        let interior = zip(1..., pages).compactMap { InteriorPage($1.span, number: $0) }
        #expect(interior.count > 20)
        #expect((interior.flatMap(\.children) + (try roots())).sorted() == Array(1...pages.count))
        for page in interior { #expect(page.runs.flatMap(Array.init) == page.children) }
    }

    @Test func `children that are named twice are asked for once`() throws {
        var page = [UInt8](repeating: 0, count: Self.pageSize)
        page[0] = 0x05
        // Three cells, which lie at the page's end, and the last child.
        page.replaceSubrange(3..<5, with: [0, 3])
        page[11] = 8
        for (index, child) in [UInt8(9), 9, 200].enumerated() {
            let cell = Self.pageSize - 8 * (index + 1)
            page.replaceSubrange((12 + 2 * index)..<(14 + 2 * index), with: [UInt8(cell >> 8), UInt8(cell & 0xff)])
            page[cell + 3] = child
        }
        #expect(InteriorPage(page.span, number: 7)?.runs == [8..<10, 200..<201])
    }

    @Test func `damaged pages are read without harm`() throws {
        var generator = SeededGenerator(seed: 23)
        let pages = try pages().filter { InteriorPage($0.span, number: 2) != nil }
        for _ in 0..<20_000 {
            var page = pages.randomElement(using: &generator) ?? []
            for _ in 0..<Int.random(in: 1...8, using: &generator) {
                // Mostly in the page's header and its pointers.
                let place = Int.random(in: 0..<(Bool.random(using: &generator) ? 40 : page.count), using: &generator)
                page[place] = .random(in: 0...255, using: &generator)
            }
            let length = Bool.random(using: &generator) ? page.count : Int.random(in: 0...page.count, using: &generator)
            let number = Int.random(in: 1...2, using: &generator)
            guard let found = InteriorPage(page.span.extracting(first: length), number: number) else { continue }
            #expect(found.children.allSatisfy { $0 > 0 && $0 < 1 << 32 })
        }
    }

    @Test func `an integrity check asks for each page before it reads it`() throws {
        let connection = try SQLiteConnection(path: path, mode: .readOnly)
        var asked: Set<Int> = []
        do {
            let readAhead = ChildReadAhead(connection) { asked.formUnion($0.map { $0 / Self.pageSize + 1 }) }
            #expect(readAhead != nil)
            #expect(try withExtendedLifetime(readAhead) { try connection.text("PRAGMA integrity_check") } == "ok")
        }
        #expect(asked.union(try roots()) == Set(1...(try pages().count)))
        // Afterwards it reads as before.
        asked = []
        connection.forgetPages()
        #expect(try connection.text("PRAGMA integrity_check") == "ok")
        #expect(asked.isEmpty)
    }

    @Test func `what is not active asks for nothing`() throws {
        let connection = try SQLiteConnection(path: path, mode: .readOnly)
        var asked: Set<Int> = []
        let found = ChildReadAhead(connection) { asked.formUnion($0) }
        let readAhead = try #require(found)
        func askedByCounting() throws -> Int {
            asked = []
            connection.forgetPages()
            _ = try connection.integer("SELECT count(*) FROM one NOT INDEXED")
            return asked.count
        }
        let first = try askedByCounting()
        #expect(first > 0)
        readAhead.isActive = false
        #expect(try askedByCounting() == 0)
        readAhead.isActive = true
        #expect(try askedByCounting() == first)
    }

    @Test func `a connection reads the same while it reads ahead`() throws {
        for mode in [SQLiteConnection.Mode.readOnly, .readWrite, .immutable] {
            let connection = try SQLiteConnection(path: path, mode: mode)
            // The file is open from the first read on.
            let count = try connection.integer("SELECT count(*) FROM one")
            connection.readsChildrenAhead = true
            #expect(connection.readsChildrenAhead)
            connection.forgetPages()
            #expect(try connection.integer("SELECT count(*) FROM one NOT INDEXED") == count)
            connection.readsChildrenAhead = false
            #expect(!connection.readsChildrenAhead)
            try connection.readingChildrenAhead { () throws(SQLiteError) in
                #expect(connection.readsChildrenAhead)
            }
            #expect(!connection.readsChildrenAhead)
            connection.readsChildrenAhead = true
            if mode == .readWrite { try connection.execute("DELETE FROM one WHERE slot % 2 = 0") }
            try connection.checkIntegrity()
        }
    }
}
