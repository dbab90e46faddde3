import System

/// Encodes the responses of one second, whose heads contain its date.
package final class ResponseEncoder: Sendable {
    /// The second, since 1970.
    package let unixTime: Int64
    private let date: [UInt8]
    /// The beginning of nearly every answer, in clear and over https.
    private let (usual, usualSecure): (UsualHead, UsualHead)

    /// - Parameter unixTime: Seconds since 1970 for the `Date` field.
    package init(unixTime: Int64) {
        self.unixTime = unixTime
        date = HTTPDate.text(unixTime: unixTime)
        usual = UsualHead(Parts.okHead + date)
        usualSecure = UsualHead(Parts.okHead + date + Parts.transportSecurity)
    }

    /// What the request and the connection require of the answer's head.
    package struct Traits: Sendable {
        /// The answer to HEAD has no body.
        ///
        /// It omits the length that GET would send, which only the work of a GET would show (RFC 9110, section 9.3.2).
        var omitsBody = false
        /// The connection is closed after this answer (RFC 9112, section 9.6).
        var closes = false
        /// The client speaks HTTP/1.0 and must be told that the connection stays open.
        var isOldVersion = false
        /// The answer has Strict-Transport-Security, which only answers over https may have (RFC 6797, section 7.2).
        var sendsHSTS = false

        package init(
            omitsBody: Bool = false, closes: Bool = false, isOldVersion: Bool = false, sendsHSTS: Bool = false
        ) {
            self.omitsBody = omitsBody
            self.closes = closes
            self.isOldVersion = isOldVersion
            self.sendsHSTS = sendsHSTS
        }
    }

    /// The interim answer to `Expect: 100-continue`.
    package static let continueResponse = Array("HTTP/1.1 100 Continue\r\n\r\n".utf8)

    /// Appends a response's bytes.
    ///
    /// - Parameters:
    ///   - response: What to send.
    ///   - traits: How to send it.
    ///   - requestID: For the `X-Request-Id` field.
    ///   - output: Where the bytes go.
    package func encode(
        _ response: borrowing Response, _ traits: Traits, requestID: RequestID = .none, into output: inout [UInt8]
    ) {
        if response.status == .ok && response.extras == nil && !traits.omitsBody && !traits.closes
            && !traits.isOldVersion
        {
            if traits.sendsHSTS {
                usualSecure.append(requestID, to: &output)
            } else {
                usual.append(requestID, to: &output)
            }
        } else {
            appendHead(response, traits, requestID, to: &output)
            // An answer with status 304 has no body and claims no length (RFC 9110, sections 8.6 and 15.4.5).
            if traits.omitsBody || response.status == .notModified {
                if let version = response.version { Self.append(entityTag: version, to: &output) }
                return output.append(contentsOf: Parts.endOfHead)
            }
            output.append(contentsOf: Parts.contentLength)
        }
        let length = response.body.count + response.laterBytes
        if let version = response.version {
            output.appendLength(length)
            Self.append(entityTag: version, to: &output)
            output.append(contentsOf: Parts.endOfHead)
        } else {
            output.appendLengthAndEndOfHead(length)
        }
        output.append(contentsOf: response.body)
    }

    /// Appends the head without Content-Length and its end.
    private func appendHead(
        _ response: borrowing Response, _ traits: Traits, _ requestID: RequestID, to output: inout [UInt8]
    ) {
        func append(_ text: String) { output.append(contentsOf: text.utf8) }
        append("HTTP/1.1 \(response.status.rawValue) \(response.status.reason)")
        // A redirect has no content whose type could be told.
        if response.extras?.location == nil || !response.body.isEmpty { output.append(contentsOf: Parts.contentType) }
        output.append(contentsOf: Parts.commonFields)
        output.append(contentsOf: date)
        if traits.sendsHSTS { output.append(contentsOf: Parts.transportSecurity) }
        if let text = requestID.text {
            output.append(contentsOf: Parts.requestID)
            append(text)
        }
        if let location = response.extras?.location {
            append("\r\nLocation: ")
            output.append(contentsOf: location)
        }
        if response.status == .methodNotAllowed {
            append("\r\nAllow: \(response.extras?.allowedMethods ?? "GET, HEAD, POST")")
        }
        if let challenge = response.extras?.challenge { append("\r\nWWW-Authenticate: \(challenge.value)") }
        if let seconds = response.extras?.retryAfter { append("\r\nRetry-After: \(seconds)") }
        if let advice = response.extras?.tokenRefresh { append("\r\nToken-Refresh: \(advice)") }
        if traits.closes {
            append("\r\nConnection: close")
        } else if traits.isOldVersion {
            append("\r\nConnection: keep-alive")
        }
    }

    /// Appends a version as a strong entity tag in hexadecimal digits; see `EntityTag.number`.
    private static func append(entityTag version: Int64, to output: inout [UInt8]) {
        output.append(contentsOf: Array("\r\nETag: \"\(String(version, radix: 16))\"".utf8))
    }

    /// A head of status 200 up to the value of Content-Length.
    private struct UsualHead {
        private let unnamed: [UInt8]
        /// With room for the digits of a request id.
        private let named: [UInt8]

        /// - Parameter start: All that precedes the request's id.
        init(_ start: [UInt8]) {
            unnamed = start + Parts.contentLength
            named =
                start + Parts.requestID + [UInt8](repeating: 0, count: RequestID.digitCount) + Parts.contentLength
        }

        func append(_ requestID: RequestID, to output: inout [UInt8]) {
            switch requestID {
            case .none: output.append(contentsOf: unnamed)
            case .made(let number):
                output.append(contentsOf: named)
                let offset = output.count - Parts.contentLength.count - RequestID.digitCount
                RequestID.write(number, to: &output, at: offset)
            case .given(let name):
                output.append(contentsOf: named.dropLast(Parts.contentLength.count + RequestID.digitCount))
                output.append(contentsOf: name)
                output.append(contentsOf: Parts.contentLength)
            }
        }
    }

    private enum Parts {
        static let contentType = Array("\r\nContent-Type: application/json".utf8)
        static let commonFields = Array(
            """
            \r
            Cache-Control: no-store\r
            X-Content-Type-Options: nosniff\r
            Date:\u{20}
            """.utf8
        )
        static let okHead = Array("HTTP/1.1 200 OK".utf8) + contentType + commonFields
        /// For a year, browsers use only https once they have had an answer over it.
        static let transportSecurity = Array("\r\nStrict-Transport-Security: max-age=31536000".utf8)
        static let requestID = Array("\r\nX-Request-Id: ".utf8)
        static let contentLength = Array("\r\nContent-Length: ".utf8)
        static let endOfHead = Array("\r\n\r\n".utf8)
    }
}

extension [UInt8] {
    /// Appends a non-negative number in decimal digits.
    mutating func appendLength(_ number: Int) {
        appendLengthAndEndOfHead(number)
        removeLast(4)
    }

    /// Appends a non-negative number in decimal digits, and the end of the head.
    package mutating func appendLengthAndEndOfHead(_ number: Int) {
        // From the last digit on: division by a constant is ten times as fast as other division.
        var digits = InlineArray<19, UInt8>(repeating: 0)
        var first = digits.count
        var rest = UInt(number)
        repeat {
            first -= 1
            digits[first] = UInt8(ascii: "0") + UInt8(truncatingIfNeeded: rest % 10)
            rest /= 10
        } while rest > 0
        append(addingCapacity: digits.count + 4) { output in
            for index in first..<digits.count { output.append(digits[index]) }
            for _ in 0..<2 {
                output.append(.carriageReturn)
                output.append(.lineFeed)
            }
        }
    }
}

/// Dates as HTTP writes them: `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, section 5.6.7).
package enum HTTPDate {
    /// - Parameter unixTime: Seconds since 1970.
    package static func text(unixTime: Int64) -> [UInt8] {
        Array(UTCTime.text(unixTime, "%a, %d %b %Y %H:%M:%S GMT").utf8)
    }
}
