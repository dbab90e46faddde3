import Foundation
import TestSupport
import Testing

@testable import TokenCacheClient

@Suite struct TokenDateTests {
    @Test func `dates are read as the server reads them, and those of other devices as well`() throws {
        let cases = try Fixtures.dates()
        #expect(cases.contains { $0.healed != $0.seconds })
        for date in cases {
            let found = TokenDate.parse(date.text)
            // The SDK's distant past is the same whatever the calendar and the zone.
            if date.isDistantPast {
                #expect(found == .distantPast, "\(date.text)")
            } else {
                #expect(found.map { Int64($0.timeIntervalSince1970.rounded(.down)) } == date.healed, "\(date.text)")
            }
        }
    }

    @Test func `what is no expiration to the server is none here`() throws {
        for date in try Fixtures.dates() {
            let prefix = "com.facebook.sdk:TokenInformation"
            let members = [prefix + "TokenKey": "a", prefix + "ExpirationDateKey": date.text]
            let text = String(decoding: try JSONSerialization.data(withJSONObject: members), as: UTF8.self)
            let expiration = try #require(try TokenInformation(text: text)).expirationDate
            // What comes later than the SDK's distant future is of another calendar; a server keeps such a token too.
            let expected = date.healed.flatMap { $0 > 64_092_211_200 ? nil : $0 }
            #expect(expiration.map { Int64($0.timeIntervalSince1970.rounded(.down)) } == expected, "\(date.text)")
        }
    }

    @Test(arguments: 0..<10 as Range<UInt64>)
    func `what is written is read as the same millisecond`(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        for _ in 0..<1_000 {
            let milliseconds = Int64.random(in: 1_072_915_200_000...14_926_463_999_999, using: &random)
            let date = Date(timeIntervalSince1970: TimeInterval(milliseconds) / 1_000)
            let read = TokenDate.parse(TokenDate.text(date))
            #expect(read.map { Int64(($0.timeIntervalSince1970 * 1_000).rounded()) } == milliseconds)
        }
    }

    @Test func `a long text is no date, whatever it contains`() {
        for part in ["a", " ", "م", "0", "."] {
            #expect(TokenDate.parse("2027-01-01T" + String(repeating: part, count: 1_000_000)) == nil)
        }
    }

    @Test func `dates are written in UTC, within the years of four digits`() {
        #expect(TokenDate.text(Date(timeIntervalSince1970: 1_376_508_245.123)) == "2013-08-14T19:24:05.123+0000")
        #expect(TokenDate.text(Date(timeIntervalSince1970: -0.001)) == "1969-12-31T23:59:59.999+0000")
        #expect(TokenDate.text(.distantPast) == "0001-01-01T00:00:00.000+0000")
        #expect(TokenDate.text(.distantFuture) == "4001-01-01T00:00:00.000+0000")
        #expect(TokenDate.text(Date(timeIntervalSince1970: 14_926_464_000)) == "4001-01-01T00:00:00.000+0000")
        #expect(TokenDate.text(Date(timeIntervalSince1970: .infinity)) == "9999-12-31T23:59:59.000+0000")
        #expect(TokenDate.text(Date(timeIntervalSince1970: 951_782_399.999_9)) == "2000-02-29T00:00:00.000+0000")
    }

    @Test(arguments: 0..<20 as Range<UInt64>)
    func `no text ends the process`(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let alphabet = Array("0123456789-:.+ TZAPM٠٩०\u{200f}上午م".unicodeScalars)
        for _ in 0..<2_000 {
            var scalars = Array("2013-08-14T07:24:05.123 PM+0530".unicodeScalars)
            for _ in 0..<Int.random(in: 1...8, using: &random) {
                let index = Int.random(in: 0..<scalars.count, using: &random)
                scalars[index] = alphabet[Int.random(in: 0..<alphabet.count, using: &random)]
            }
            scalars.removeLast(Int.random(in: 0..<scalars.count, using: &random))
            var text = ""
            text.unicodeScalars.append(contentsOf: scalars)
            _ = TokenDate.parse(text)
        }
    }
}
