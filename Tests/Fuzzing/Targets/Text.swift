/// A text in which each character is one byte, as the models read it; Swift's strings take CR LF for one character.
typealias Text = ArraySlice<Unicode.Scalar>

extension Sequence<UInt8> {
    var text: Text { map { Unicode.Scalar($0) }[...] }
}

extension String {
    var text: Text { Array(unicodeScalars)[...] }
}

extension Text {
    /// For comparisons and messages.
    var string: String { String(String.UnicodeScalarView(self)) }

    /// ASCII letters in lower case.
    var lowercased: String {
        String(String.UnicodeScalarView(map { "A"..."Z" ~= $0 ? Unicode.Scalar(UInt8($0.value + 32)) : $0 }))
    }

    /// Without the blanks and tabs at its ends.
    var trimmed: Text {
        let start = drop { $0 == " " || $0 == "\t" }
        return start[..<(start.lastIndex { $0 != " " && $0 != "\t" }.map { $0 + 1 } ?? start.startIndex)]
    }

    /// The elements of a comma-separated list (RFC 9110, section 5.6.1).
    var elements: [Text] {
        split(separator: ",").map(\.trimmed).filter { !$0.isEmpty }
    }

    /// RFC 9110, section 5.6.2.
    var isToken: Bool {
        !isEmpty && allSatisfy { $0.isLetterOrDigit || "!#$%&'*+-.^_`|~".unicodeScalars.contains($0) }
    }

    var isDigits: Bool { !isEmpty && allSatisfy(\.isDigit) }

    func hasPrefix(_ prefix: String) -> Bool { starts(with: prefix.unicodeScalars) }

    func hasSuffix(_ suffix: String) -> Bool {
        self.suffix(suffix.unicodeScalars.count).elementsEqual(suffix.unicodeScalars)
    }
}

extension Unicode.Scalar {
    var isDigit: Bool { "0"..."9" ~= self }
    var isLetterOrDigit: Bool { isDigit || "a"..."z" ~= self || "A"..."Z" ~= self }
    var isHexadecimal: Bool { isDigit || "a"..."f" ~= self || "A"..."F" ~= self }
    /// RFC 9110, section 5.5.
    var isInFieldValue: Bool { self == "\t" || value >= 0x20 && value != 0x7f }
}
