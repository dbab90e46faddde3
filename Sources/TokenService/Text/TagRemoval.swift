import HTTP

/// PHP's `strip_tags` without allowed tags, byte for byte.
///
/// The rules are those of the contract's state table, which was derived from PHP 8.2. They apply to ids and token infos alike,
/// so that everything that clients of `token.php` have stored is found again.
package enum TagRemoval {
    /// The text without its tags.
    ///
    /// A text without `<` and NUL is returned as it is, without a copy.
    package static func removeTags(from input: [UInt8]) -> [UInt8] {
        let span = input.span
        let all = 0..<input.count
        if span.firstIndex(of: Character.less, in: all) == nil, span.firstIndex(of: Character.nul, in: all) == nil {
            return input
        }
        var machine = Machine(input)
        machine.run()
        return machine.output
    }

    private enum Character {
        static let nul: UInt8 = 0
        static let less = UInt8(ascii: "<")
        static let greater = UInt8(ascii: ">")
        static let doubleQuote = UInt8(ascii: "\"")
        static let singleQuote = UInt8(ascii: "'")
    }

    /// What stands before the byte that ends a mode, as numbers: texts would be compared slowly, and at every byte of some inputs.
    private enum Before {
        static let xml: UInt64 = 0x3c_3f_78_6d  // <?xm
        static let doctype: UInt64 = 0x64_6f_63_74_79_70  // doctyp
        static let comment: UInt64 = 0x21_2d  // !-
        static let commentEnd: UInt64 = 0x2d_2d  // --
    }

    private enum Mode {
        /// Outside tags: bytes are kept.
        case text
        case tag
        /// `<?`
        case processingInstruction
        /// `<!`
        case declaration
        /// `<!--`
        case comment
    }

    private struct Machine {
        private let input: [UInt8]
        private(set) var output: [UInt8] = []
        private var mode = Mode.text
        private var depth = 0
        private var quote: UInt8?
        private var parentheses = 0
        private var last: UInt8?
        private var isXML = false
        /// The bytes before the current one, the latest lowest, with ASCII's letters in lower case.
        private var recent: UInt64 = 0

        init(_ input: [UInt8]) {
            self.input = input
            output.reserveCapacity(input.count)
        }

        mutating func run() {
            for index in input.indices {
                switch mode {
                case .text: readText(at: index)
                case .tag: readTag(at: index)
                case .processingInstruction: readProcessingInstruction(at: index)
                case .declaration: readDeclaration(at: index)
                case .comment: readComment(at: index)
                }
                recent = recent << 8 | UInt64(ByteClass.lowerCase(input[index]))
            }
        }

        private mutating func readText(at index: Int) {
            switch input[index] {
            case Character.nul: break
            case Character.less where !isFollowedBySpace(index):
                last = Character.less
                mode = .tag
            case Character.greater where depth > 0: depth -= 1
            case let byte: output.append(byte)
            }
        }

        private mutating func readTag(at index: Int) {
            switch input[index] {
            case Character.less:
                if quote == nil && !isFollowedBySpace(index) { depth += 1 }
            case Character.greater:
                if depth > 0 {
                    depth -= 1
                } else if quote == nil {
                    last = Character.greater
                    if !(isXML && previous == UInt8(ascii: "-")) {
                        isXML = false
                        mode = .text
                    }
                }
            case Character.doubleQuote, Character.singleQuote: toggle(input[index])
            case UInt8(ascii: "!") where previous == Character.less:
                last = UInt8(ascii: "!")
                mode = .declaration
            case UInt8(ascii: "?") where previous == Character.less:
                parentheses = 0
                mode = .processingInstruction
            default: break
            }
        }

        private mutating func readProcessingInstruction(at index: Int) {
            let byte = input[index]
            switch byte {
            case UInt8(ascii: "("), UInt8(ascii: ")"):
                if last != Character.doubleQuote && last != Character.singleQuote {
                    parentheses += byte == UInt8(ascii: "(") ? 1 : -1
                    last = byte
                }
            case Character.greater:
                if depth > 0 {
                    depth -= 1
                } else if quote == nil && parentheses == 0 && last != Character.doubleQuote
                    && previous == UInt8(ascii: "?")
                {
                    mode = .text
                }
            case Character.doubleQuote, Character.singleQuote:
                if previous != UInt8(ascii: "\\") {
                    last = last == byte ? nil : byte
                    toggle(byte)
                }
            case UInt8(ascii: "l"), UInt8(ascii: "L"):
                // `<?xml` closes like a tag, except at the very start of the input.
                if index >= 5 && follows(Before.xml) {
                    isXML = true
                    mode = .tag
                }
            default: break
            }
        }

        private mutating func readDeclaration(at index: Int) {
            switch input[index] {
            case Character.greater:
                if depth > 0 {
                    depth -= 1
                } else if quote == nil {
                    mode = .text
                }
            case Character.doubleQuote, Character.singleQuote:
                if previous != UInt8(ascii: "\\") { toggle(input[index]) }
            case UInt8(ascii: "-"):
                if follows(Before.comment) { mode = .comment }
            case UInt8(ascii: "e"), UInt8(ascii: "E"):
                if follows(Before.doctype) { mode = .tag }
            default: break
            }
        }

        private mutating func readComment(at index: Int) {
            if input[index] == Character.greater && quote == nil && follows(Before.commentEnd) { mode = .text }
        }

        // MARK: - Neighbours

        /// The byte before the current one; NUL at the beginning.
        private var previous: UInt8 { UInt8(truncatingIfNeeded: recent) }

        private func isFollowedBySpace(_ index: Int) -> Bool {
            guard index + 1 < input.count else { return false }
            return input[index + 1] == 0x20 || (0x09...0x0d).contains(input[index + 1])
        }

        /// Whether the text stands directly before the current byte, in upper or lower case.
        private func follows(_ text: UInt64) -> Bool {
            let bits = UInt64.bitWidth - text.leadingZeroBitCount / 8 * 8
            return recent & (1 << bits - 1) == text
        }

        private mutating func toggle(_ byte: UInt8) {
            if quote == nil {
                quote = byte
            } else if quote == byte {
                quote = nil
            }
        }
    }
}

/// What a request's `unique_id` is, after decoding.
package enum UniqueID: Hashable, Sendable {
    /// It is missing, an array or empty, or has nothing but tags.
    case empty
    /// It is not UTF-8, holds NUL or is too long.
    case invalid
    /// The text with its tags removed: what is authorized, logged and stored.
    case text([UInt8])

    /// Longest id in bytes, decoded and with tags removed.
    package static let limit = 1024

    /// - Parameters:
    ///   - bytes: The decoded parameter; nil if it is missing.
    ///   - limit: Bytes that the text may have.
    package init(_ bytes: [UInt8]?, limit: Int = Self.limit) {
        let bytes = bytes ?? []
        guard Self.isUTF8(bytes), bytes.span.firstIndex(of: 0, in: 0..<bytes.count) == nil else {
            self = .invalid
            return
        }
        let text = TagRemoval.removeTags(from: bytes)
        self = text.isEmpty ? .empty : text.count > limit ? .invalid : .text(text)
    }

    /// The text; nil if there is none.
    package var text: [UInt8]? {
        if case .text(let text) = self { text } else { nil }
    }

    static func isUTF8(_ bytes: [UInt8]) -> Bool {
        (try? UTF8Span(validating: bytes.span)) != nil
    }
}
