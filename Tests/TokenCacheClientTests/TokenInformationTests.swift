import Foundation
import TestSupport
import Testing

@testable import TokenCacheClient

private let prefix = "com.facebook.sdk:TokenInformation"
private let now = Date(timeIntervalSince1970: 1_400_000_000)

private func read(_ members: String) throws -> TokenInformation? {
    try TokenInformation(text: members.replacing("KEY:", with: prefix), now: now)
}

/// What the server stores of a form's body, as its contract says: `+` is a space, `%` and two digits are a byte.
func decoded(_ body: String, _ name: String) -> String {
    let pair = body.split(separator: "&").last { $0.hasPrefix(name + "=") } ?? ""
    let value = pair.dropFirst(name.count + 1).replacing("+", with: " ")
    return value.removingPercentEncoding ?? ""
}

@Suite struct TokenInformationTests {
    @Test func `the eight bodies of the guide's sample are read with the right instants`() throws {
        let bodies = try Fixtures.sampleBodies()
        #expect(bodies.count == 8)
        for body in bodies {
            let information = try TokenInformation(text: decoded(body.body, "token_info"))
            #expect(information?.expirationDate.map(milliseconds) == body.expires, "\(body)")
            #expect(information?.refreshDate.map(milliseconds) == body.refreshed, "\(body)")
            guard let information else { continue }
            #expect(information.permissionsRefreshDate == .distantPast, "\(body)")
            #expect(information.permissions == ["publish_actions", "basic_info"])
            #expect(information.loginType == .facebookApplication)
            #expect(information.others.isEmpty)
            // Healed once, it stays so.
            #expect(try TokenInformation(text: information.text) == information)
        }
    }

    private func milliseconds(_ date: Date) -> Int64 {
        Int64((date.timeIntervalSince1970 * 1_000).rounded())
    }

    @Test(arguments: [
        "", " \n", "{}", " {\t} ", #"{"a":1}"#, #"{"KEY:TokenKey":""}"#, #"{"KEY:TokenKey":" \t\u00a0"}"#,
        #"{"KEY:TokenKey":null}"#,
    ])
    func `without a token there is none`(text: String) throws {
        #expect(try read(text) == nil)
    }

    @Test(arguments: [
        "[]", "null", "0", "\"x\"", "{", #"{"KEY:TokenKey":"a""#, #"{"KEY:TokenKey":1}"#, "{}{}",
        #"{"KEY:TokenKey":["a"]}"#, "<html>", #"{"KEY:TokenKey":"a","x":01}"#,
        String(repeating: #"{"a":"#, count: 100_000),
    ])
    func `what cannot be read is unknown, not none`(text: String) {
        #expect {
            try read(text)
        } throws: { error in
            if case TokenCacheError.unreadable = error { true } else { false }
        }
    }

    @Test func `missing dates are those of the SDK`() throws {
        let information = try #require(try read(#"{"KEY:TokenKey":"a"}"#))
        #expect(information.expirationDate == .distantFuture)
        #expect(information.refreshDate == now)
        #expect(information.permissionsRefreshDate == .distantPast)
        #expect(information.loginType == .none)
    }

    @Test(arguments: [#""soon""#, "1376508245", "[]", #""2013-08-14T19:24:05""#, #""0025-08-14T19:24:05Z""#, "true"])
    func `an expiration that cannot be read is unknown and stays as it came`(value: String) throws {
        let text = #"{"KEY:ExpirationDateKey":\#(value),"KEY:TokenKey":"a"}"#
        let information = try #require(try read(text))
        #expect(information.expirationDate == nil)
        #expect(!information.isExpired(at: .distantFuture))
        let again = try #require(try TokenInformation(text: information.text))
        #expect(again.expirationDate == nil)
        #expect(information.text.contains(value))
        // Until there is one that can be written.
        var extended = again
        extended.expirationDate = now
        #expect(try TokenInformation(text: extended.text)?.expirationDate == now)
    }

    @Test func `what this library does not know comes back as it came`() throws {
        let rest =
            #""a":[-0.25,12345678901234567890,{"b":null}],"c":"\u003cé/\ud83d\ude00","KEY:IsFacebookLoginKey":true"#
        let information = try #require(try read(#"{"KEY:TokenKey":"a","KEY:UserFBIDKey":712,\#(rest)}"#))
        #expect(information.userID == "712")
        #expect(information.loginType == .facebookApplication)
        let again = try #require(try TokenInformation(text: information.text))
        #expect(again == information)
        #expect(again.text.contains(#""a":[-0.25,12345678901234567890,{"b":null}],"c":"\u003cé/😀""#))
        #expect(again.text.contains(#"IsFacebookLoginKey":true"#))
    }

    @Test func `everything comes back from the text form`() throws {
        let information = TokenInformation(
            token: "CAAC<b>&+ %\"\\\u{0}\u{7f}é😀", expirationDate: now.addingTimeInterval(0.125), refreshDate: now,
            permissions: ["email", "a<b"], declinedPermissions: ["user_likes"], permissionsRefreshDate: now,
            loginType: .testUser, appID: "12", userID: "34", others: ["x": .array([.bool(false), .null])])
        #expect(!information.text.contains("<"))
        #expect(try TokenInformation(text: information.text) == information)
        // Foundation's reader agrees.
        let object = try JSONSerialization.jsonObject(with: Data(information.text.utf8)) as? [String: Any]
        #expect(object?[prefix + "TokenKey"] as? String == information.token)
        #expect(object?[prefix + "ExpirationDateKey"] as? String == "2014-05-13T16:53:20.125+0000")
        #expect(object?[prefix + "LoginTypeLoginKey"] as? Int == 5)
    }

    @Test func `what would be written alike is equal`() throws {
        let date = Date(timeIntervalSince1970: 1_400_000_000.123_4)
        let information = TokenInformation(token: "a", expirationDate: date, refreshDate: date)
        let read = try #require(try TokenInformation(text: information.text))
        #expect(read == information && read.hashValue == information.hashValue)
        for change: (inout TokenInformation) -> Void in [
            { $0.token = "b" }, { $0.expirationDate = nil }, { $0.refreshDate? += 0.001 },
            { $0.permissionsRefreshDate = date }, { $0.permissions = ["a"] }, { $0.declinedPermissions = ["a"] },
            { $0.loginType = .webView }, { $0.appID = "1" }, { $0.userID = "1" }, { $0.others = ["a": .null] },
        ] {
            var other = information
            change(&other)
            #expect(other != information)
            #expect(try TokenInformation(text: other.text) != information)
        }
    }

    @Test func `the file of the guide's sample is read`() throws {
        let list: [String: Any] = [
            prefix + "TokenKey": "CAAC", prefix + "ExpirationDateKey": now, prefix + "PermissionsKey": ["email"],
            prefix + "LoginTypeLoginKey": 2, prefix + "PermissionsRefreshDateKey": Date.distantPast,
        ]
        let data = try PropertyListSerialization.data(fromPropertyList: list, format: .xml, options: 0)
        let information = try #require(try TokenInformation(propertyList: data))
        #expect(information.token == "CAAC")
        #expect(information.expirationDate == now)
        #expect(information.permissions == ["email"])
        #expect(information.permissionsRefreshDate == .distantPast)
        let empty = try PropertyListSerialization.data(fromPropertyList: [String: Any](), format: .xml, options: 0)
        #expect(try TokenInformation(propertyList: empty) == nil)
        #expect(throws: TokenCacheError.self) { try TokenInformation(propertyList: Data("<html>".utf8)) }
    }

    @Test func `no description shows the token or its user`() {
        let information = TokenInformation(token: "SECRET", userID: "SECRET", others: ["SECRET": .string("SECRET")])
        var dumped = ""
        dump(information, to: &dumped)
        dump([Optional(information)], to: &dumped)
        for text in ["\(information)", String(reflecting: information), "\([information])", dumped] {
            #expect(!text.contains("SECRET"), "\(text)")
        }
    }
}
