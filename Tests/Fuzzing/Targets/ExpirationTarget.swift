import TokenStore

extension FuzzTarget {
    /// The expiration date in a token info.
    static let expirations = FuzzTarget(
        "expirations",
        words: [
            "\"", ":", "\\", "1", " ",
            "\"com.facebook.sdk:TokenInformationExpirationDateKey\":", "\"2013-08-14T19:24:05.123+0000\"",
            "2016-02-29T",
            "T23:59:59", ".999999999", "Z", "+00:00", "-0800", " 0100", "+053045", "9999-12-31", "0000-03-01", "24",
            "60", "-",
        ]
    ) { input in
        _ = TokenExpiration.expiration(of: input.span)
        // A token info with the input as its date.
        guard input.allSatisfy({ $0 != UInt8(ascii: "\"") && $0 != UInt8(ascii: "\\") }) else { return }
        let key = Array(#"{"com.facebook.sdk:TokenInformationExpirationDateKey":""#.utf8)
        let info = key + input + Array("\"}".utf8)
        let date = input.count <= 40 ? ExpirationDate.seconds(input.span) : nil
        try compare(TokenExpiration.expiration(of: info.span), date, "the date in a token info")
    }
}
