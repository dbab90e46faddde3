import Foundation
import System
import TestSupport
import Testing

@testable import TokenPHPFiles

@Suite struct TokenPHPFileTests {
    private let folder = TemporaryDirectory()

    private func write(_ content: [UInt8], to name: String) throws {
        try Data(content).write(to: URL(filePath: "\(folder.path)/\(name)"))
    }

    private func entries() throws -> [TokenPHPFolderReader.Entry] {
        let reader = try TokenPHPFolderReader(folder.path)
        var entries: [TokenPHPFolderReader.Entry] = []
        while let entry = try reader.next() { entries.append(entry) }
        return entries
    }

    @Test(
        "the token info is a JSON string, that in an object, or all of the file",
        arguments: [
            (#""""#, ""), (#""a\/b\u00e9\ud83c\udf89\"\\\n""#, "a/bé🎉\"\\\n"),
            (#"{"token_info":""}"#, ""), (#"{"token_info":"{\"a\":1}"}"#, #"{"a":1}"#),
            (#"{"com.facebook.sdk:TokenInformationTokenKey":"CAA"}"#, nil), ("plain", nil),
            (#"{"token_info":"a","b":{"token_info":1}}"#, "a"), (#"{"token_info":null,"token_info":"a"}"#, "a"),
            ("{}", nil), ("null", nil), (" plain\n", nil), ("\u{feff}\"a\"", nil), ("\0\"a\"", nil),
            ("\"a\"\n", "a"), ("\r\n\t \"a \"\r\n", "a "), (" {\"token_info\" : \"a\"} \n", "a"),
            (" {\"a\": 1}\n", "{\"a\": 1}"),
        ] as [(String, String?)]
    )
    func formats(_ content: String, _ tokenInfo: String?) throws {
        let found = try TokenPHPFile.tokenInfo(in: Array(content.utf8))
        #expect(String(decoding: found, as: UTF8.self) == tokenInfo ?? content)
    }

    @Test(
        "a file whose JSON has no text, or is no JSON, is what token.php has lost",
        arguments: [
            #"{"token_info":null}"#, #"{"token_info":12}"#, #"{"token_info":"a","token_info":[]}"#,
            #"{"token_info":{"a":1}}"#,
            #""a"b"#, #""a"#, #"{"token_info":"a"#, #"{"token_info":"a"}{"#, #""\ud83c""#, #"{"token_info":"\udc00"}"#,
            "\"\n\"", "\"a\"\u{b}", "\"a\"\0",
        ])
    func lost(_ content: String) {
        #expect(throws: TokenPHPFile.SkipReason.lost) { try TokenPHPFile.tokenInfo(in: Array(content.utf8)) }
    }

    @Test(
        "files are read with ids and times, or skipped; a time in the future is none",
        arguments: [(1_400_000_000, 1_400_000_000), (4_000_000_000, nil)] as [(Double, Int64?)]
    )
    func reading(_ time: Double, _ modifiedAt: Int64?) throws {
        try write(Array(#""hello""#.utf8), to: "me@example.txt")
        try FileManager.default.setAttributes(
            [.modificationDate: Date(timeIntervalSince1970: time)],
            ofItemAtPath: "\(folder.path)/me@example.txt"
        )
        try write([], to: "lost.txt")
        try write(Array("x".utf8), to: "readme.md")
        try write(Array("x".utf8), to: ".txt")
        try write(Array("x".utf8), to: "a<b>c.txt")
        try write([0xff], to: "bad.txt")
        try write(Array(#"{"token_info":null}"#.utf8), to: "null.txt")
        try FileManager.default.createDirectory(atPath: "\(folder.path)/sub.txt", withIntermediateDirectories: false)
        try FileManager.default.createSymbolicLink(
            atPath: "\(folder.path)/link.txt", withDestinationPath: "me@example.txt")
        var reasons: [String: TokenPHPFile.SkipReason] = [:]
        var files: [TokenPHPFile] = []
        for entry in try entries() {
            switch entry {
            case .token(let file): files.append(file)
            case .skipped(let name, let reason): reasons[String(decoding: name, as: UTF8.self)] = reason
            }
        }
        let expected = TokenPHPFile(
            id: Array("me@example".utf8), tokenInfo: Array("hello".utf8), modifiedAt: modifiedAt)
        #expect(files == [expected])
        #expect(
            reasons == [
                "lost.txt": .empty, "readme.md": .otherName, ".txt": .otherName, "a<b>c.txt": .notAnID,
                "bad.txt": .contentNotText, "null.txt": .lost, "sub.txt": .notAFile, "link.txt": .notAFile,
            ]
        )
        #expect(try TokenPHPFolderReader(folder.path).count() == 9)
    }

    @Test("a file whose name is not UTF-8 is skipped, and the file ..txt, with the id ., is read")
    func oddNames() throws {
        let path = folder.path
        let name = "\(path)/".utf8.map { CChar(bitPattern: $0) } + [CChar(bitPattern: 0xff), 46, 116, 120, 116, 0]
        let descriptor = open(name, O_WRONLY | O_CREAT, 0o600)
        #expect(descriptor >= 0)
        close(descriptor)
        try write(Array("x".utf8), to: "..txt")
        let found = try entries()
        #expect(found.contains { if case .skipped(_, .notAnID) = $0 { true } else { false } })
        #expect(found.contains { if case .token(let file) = $0 { file.id == [46] } else { false } })
    }

    @Test("files are written with mode 0600 and their times, if the id can be a file's name")
    func writing() throws {
        let path = "\(folder.path)/out"
        let writer = try TokenPHPFolderWriter(path)
        for (id, reason) in [
            ("me", nil), ("a b\"é", nil), (String(repeating: "i", count: 251), nil),
            ("a/b", TokenPHPFile.SkipReason.notAFileName),
            (String(repeating: "i", count: 252), .notAFileName),
        ] {
            #expect(try writer.write(Array("hé".utf8), id: Array(id.utf8), modifiedAt: 1_400_000_000) == reason)
        }
        #expect(try writer.write(Array("new".utf8), id: Array("me".utf8), modifiedAt: 5) == nil)
        try writer.finish()
        let attributes = try FileManager.default.attributesOfItem(atPath: "\(path)/me.txt")
        #expect(attributes[.posixPermissions] as? Int == 0o600)
        #expect((attributes[.modificationDate] as? Date)?.timeIntervalSince1970 == 5)
        #expect(try String(contentsOfFile: "\(path)/a b\"é.txt", encoding: .utf8) == #""h\u00e9""#)
        #expect(try String(contentsOfFile: "\(path)/me.txt", encoding: .utf8) == #""new""#)
        #expect(try FileManager.default.contentsOfDirectory(atPath: path).count == 3)
    }

    @Test("two exports do not write to one folder at the same time, in which one id could get the token of another")
    func writingTwice() throws {
        let path = folder.path
        do {
            let writer = try TokenPHPFolderWriter(path)
            #expect(throws: TokenPHPFolderError(path: path, error: SystemError(call: "flock", code: EWOULDBLOCK))) {
                _ = try TokenPHPFolderWriter(path)
            }
            #expect(try writer.write(Array("info".utf8), id: Array("me".utf8), modifiedAt: 5) == nil)
        }
    }

    @Test("a folder with files of tokens, among which may be those of erased users, is not exported into")
    func writingBesideOthers() throws {
        let path = folder.path
        #expect(FileManager.default.createFile(atPath: "\(path)/notes", contents: nil))
        _ = try TokenPHPFolderWriter(path)
        #expect(FileManager.default.createFile(atPath: "\(path)/erased.txt", contents: nil))
        #expect(throws: TokenPHPFolderError(path: path, error: SystemError(call: "readdir", code: ENOTEMPTY))) {
            _ = try TokenPHPFolderWriter(path)
        }
    }

    @Test("an error names the folder that cannot be used, or not be read to its end")
    func missingFolder() throws {
        #expect(throws: TokenPHPFolderError(path: "/none", error: SystemError(call: "opendir", code: ENOENT))) {
            _ = try TokenPHPFolderReader("/none")
        }
        #expect(throws: TokenPHPFolderError.self) { _ = try TokenPHPFolderWriter("/none/out") }
        let reader = try TokenPHPFolderReader(folder.path)
        // From now on, reading the folder fails.
        let file = open("/dev/null", O_RDONLY)
        dup2(file, dirfd(reader.stream))
        close(file)
        #expect(throws: TokenPHPFolderError(path: folder.path, error: SystemError(call: "readdir", code: ENOTDIR))) {
            _ = try reader.next()
        }
    }
}
