import Foundation
import Settings
import Testing

/// What is documented of the settings is made from their one description, `Setting.all`.
///
///     WRITE_SETTINGS=1 swift test --filter SettingsDocumentationTests
///
/// writes the files anew.
@Suite struct SettingsDocumentationTests {
    private static let folder = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().appending(path: "config")

    private func check(_ file: String, _ expected: (String) throws -> String) throws {
        let url = Self.folder.appending(path: file)
        let text = try String(contentsOf: url, encoding: .utf8)
        let wanted = try expected(text)
        if ProcessInfo.processInfo.environment["WRITE_SETTINGS"] != nil {
            try wanted.write(to: url, atomically: true, encoding: .utf8)
            return
        }
        let (lines, wantedLines) = (text.split(separator: "\n"), wanted.split(separator: "\n"))
        let difference = wantedLines.difference(from: lines).map { change in
            switch change {
            case .insert(_, let line, _): "+ \(line)"
            case .remove(_, let line, _): "- \(line)"
            }
        }
        #expect(
            text == wanted,
            """
            config/\(file) differs from Sources/Settings/Description. Change the description, then run
            WRITE_SETTINGS=1 swift test --filter SettingsDocumentationTests
            \(difference.joined(separator: "\n"))
            """
        )
    }

    @Test func `the sample file shows every setting with its default and purpose`() throws {
        try check("token-cache.yaml") { _ in SampleFile.text }
        let sample = try SettingsLoader(filePath: Self.folder.appending(path: "token-cache.yaml").path)
            .loadWithOrigins()
        #expect(sample.settings.listing == Settings().listing)
        #expect(Set(sample.origins.keys) == Set(Setting.all.map(\.key)))
    }

    @Test func `the table of config/README.md has a row for every setting`() throws {
        try check("README.md") { text in
            let begin = try #require(text.range(of: SettingsTable.begin))
            let end = try #require(text.range(of: SettingsTable.end))
            return text[..<begin.lowerBound] + SettingsTable.text + text[end.upperBound...]
        }
    }

    @Test func `no two settings have the same key or variable`() {
        #expect(Set(Setting.all.map(\.key)).count == Setting.all.count)
        #expect(Set(Setting.all.map(\.environmentName)).count == Setting.all.count)
    }
}
