import Foundation
import TestSupport
import Testing

@testable import TokenStore

private let key = "com.facebook.sdk:TokenInformationExpirationDateKey"

private func expiration(_ tokenInfo: String) -> Int64? {
    TokenExpiration.expiration(of: Array(tokenInfo.utf8).span)
}

@Suite struct TokenExpirationTests {
    /// The date of the table, 2013-08-14T19:24:05Z.
    private static let date: Int64 = 1_376_508_245

    @Test(
        "the member is found, however much of the object is there",
        arguments: [
            #"{"KEY":"2013-08-14T19:24:05.123+0000"}"#,
            #"{"KEY":"2013-08-14T19:24:05.123 0000"}"#,
            " {\n\t\"KEY\"\r : \"2013-08-14T19:24:05.123Z\" } ",
            #"{"a":[1,{"KEY":"x"},"]"],"b":{"c":"}"},"d":-1.5e+3,"e":null,"KEY":"2013-08-14T19:24:05.123+0000"}"#,
            #"{"a":"\"KEY\":\"x\"","b":"\\","KEY":"2013-08-14T19:24:05.123+0000"}"#,
            #"{"a":{"KEY":"2013-08-14T19:24:05Z"}}"#,
            // The latest one counts.
            #"{"KEY":"2010-01-01T00:00:00Z","KEY":"2013-08-14T19:24:05.123+0000"}"#,
            #"{"KEY":"2013-08-14T19:24:05.123+0000","KEY":null,"KEY":"2010-01-01T00:00:00Z"}"#,
            // Cut off or broken behind the date.
            #"{"KEY":"2013-08-14T19:24:05.123 0000""#,
            #"{"KEY":"2013-08-14T19:24:05.123 0000","a"#,
        ]
    )
    func found(tokenInfo: String) {
        #expect(expiration(tokenInfo.replacing("KEY", with: key)) == Self.date)
    }

    @Test(
        "anything else has no expiration",
        arguments: [
            "", "{", "KEY", #""KEY""#, #"["KEY","2013-08-14T19:24:05Z"]"#, #"{"token_info":"2013-08-14T19:24:05Z"}"#,
            #"{"xKEY":"2013-08-14T19:24:05Z"}"#, #"{"KEYx":"2013-08-14T19:24:05Z"}"#, #"{"KEY":1376508245}"#,
            #"{"KEY":null}"#, #"{"KEY":["2013-08-14T19:24:05Z"]}"#, #"{"KEY":{}}"#, #"{"KEY":""}"#, #"{"KEY":"soon"}"#,
            #"{"KEY" "2013-08-14T19:24:05Z"}"#, #"{"KEY":"2013-08-14T19:24:05Z\n"}"#,
            // In a string.
            #"{"a":"\"KEY\":\"2013-08-14T19:24:05Z\""}"#, #"{"a":"{\"KEY\":\"2013-08-14T19:24:05Z\"}"}"#,
            // Cut off or broken before the date's end.
            #"{"KEY":"2013-08-14T19:24:05Z"#, #"{"KEY":"2013-08-14T19:2"#, #"{"KEY":"#, #"{"KEY"#,
            // The login outlives the access token.
            #"{"KEY":"2013-08-14T19:24:05Z","TokenCacheClient:RefreshToken":"r"}"#,
            #"{"TokenCacheClient:RefreshToken":"r","KEY":"2013-08-14T19:24:05Z"}"#,
        ]
    )
    func absent(tokenInfo: String) {
        #expect(expiration(tokenInfo.replacing("KEY", with: key)) == nil)
    }
}

@Suite struct ExpirationDateTests {
    private func seconds(_ text: String) -> Int64? {
        ExpirationDate.seconds(Array(text.utf8).span)
    }

    @Test("dates are read with any zone and fraction; what is no such date gives nothing")
    func dates() throws {
        let cases = try Fixtures.dates()
        #expect(cases.count > 80)
        for date in cases { #expect(seconds(date.text) == date.seconds, "\(date.text)") }
    }

    /// Foundation uses the Julian calendar before 1582, so for those years the test asks it about 2,000 years later:
    /// five cycles of the Gregorian calendar, of 146,097 days each.
    @Test("the days agree with Foundation's", arguments: 0..<20 as Range<UInt64>)
    func foundation(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        var calendar = Calendar(identifier: .gregorian)
        calendar.timeZone = try #require(TimeZone(secondsFromGMT: 0))
        for _ in 0..<500 {
            let year = Int.random(in: 1...9_999, using: &random)
            let isEarly = year < 1583
            let start = try #require(calendar.date(from: DateComponents(year: isEarly ? year + 2_000 : year, month: 1)))
            let second = Int.random(in: 0..<365 * 86_400, using: &random)
            let date = start.addingTimeInterval(TimeInterval(second))
            let parts = calendar.dateComponents([.month, .day, .hour, .minute, .second], from: date)
            let zone = Int.random(in: -1_439...1_439, using: &random)
            let text = try String(
                format: "%04d-%02d-%02dT%02d:%02d:%02d.%03d%@%02d%02d", year, #require(parts.month),
                #require(parts.day),
                #require(parts.hour), #require(parts.minute), #require(parts.second),
                Int.random(in: 0...999, using: &random), zone < 0 ? "-" : "+", abs(zone) / 60, abs(zone) % 60
            )
            let expected = Int64(date.timeIntervalSince1970) - Int64(zone * 60) - (isEarly ? 5 * 146_097 * 86_400 : 0)
            #expect(seconds(text) == (expected >= 1_072_915_200 ? expected : nil), "\(text)")
        }
    }

    @Test("each day of 400 years is the one after the last, and no month has another")
    func everyDay() {
        var last = seconds("2399-12-31T00:00:00Z") ?? 0
        var days = 0
        for year in 2400..<2800 {
            for month in 1...12 {
                for day in 0...32 {
                    let text = String(format: "%04d-%02d-%02dT00:00:00Z", year, month, day)
                    guard let date = seconds(text) else { continue }
                    #expect(date == last + 86_400, "\(text)")
                    last = date
                    days += 1
                }
            }
        }
        #expect(days == 146_097)
    }
}
