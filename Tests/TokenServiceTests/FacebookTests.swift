import Cryptography
import Testing
import TokenStore

@testable import TokenService

@Suite struct FacebookTests {
    private let secret = SecretKey(Array("0123456789abcdef0123456789abcdef".utf8).span)

    @Test func `the user is found in token infos with the keys of the SDK`() {
        let key = #""com.facebook.sdk:TokenInformationUserFBIDKey""#
        let found: [String: String?] = [
            #"{\#(key):"218471"}"#: "218471", #"{\#(key) : 218471, "x":1}"#: "218471", #"{"a":"b",\#(key):"1"}"#: "1",
            #"{\#(key):""}"#: nil, #"{\#(key):"x"}"#: nil, #"{\#(key)"#: nil, #"{\#(key):"#: nil, "": nil, #"""#: nil,
            #"{"TokenInformationUserFBIDKey" :7}"#: "7", #"{"UserFBIDKey":"7"}"#: nil,
            #"{\#(key):"\#(String(repeating: "9", count: 40))"}"#: nil,
        ]
        for (text, user) in found {
            let bytes = Array(text.utf8)
            #expect(Departures.user(of: bytes.span) == user, "\(text)")
        }
    }

    @Test func `a cut token info has no user or the beginning of it`() {
        let text = Array(#"{"com.facebook.sdk:TokenInformationUserFBIDKey":"218471"}"#.utf8)
        for count in text.indices {
            let cut = Array(text[..<count])
            let user = Departures.user(of: cut.span)
            #expect(user.map { "218471".hasPrefix($0) } ?? true)
        }
    }

    @Test func `only the server makes codes, and they say when the departure was noted`() throws {
        let list = TokenVersion(rawValue: 9)
        let departure = try #require(Departure("218471 1700000000 1700000007 5 erase", in: list))
        #expect(departure.line == "218471 1700000000 1700000007 5 erase\n")
        let code = departure.code(secret)
        #expect(code == departure.code(secret) && Departure.time(ofCode: Array(code.utf8), secret) == 1_700_000_007)
        #expect(Departure.time(ofCode: Array(code.utf8), .random()) == nil)
        for index in code.utf8.indices {
            var other = Array(code.utf8)
            let place = code.utf8.distance(from: code.startIndex, to: index)
            other[place] = other[place] == UInt8(ascii: "0") ? UInt8(ascii: "1") : UInt8(ascii: "0")
            #expect(Departure.time(ofCode: other, secret) == nil)
        }
        for line in ["", "218471 1 2 3", "x 1 2 3 erase", "1 2 3 4 5 6", "1 x 3 4 erase"] {
            #expect(Departure(line[...], in: list) == nil)
        }
        // That of a departure that the list has only now.
        #expect(Departure("1 2 3 - remove", in: list)?.version == list)
    }
}
