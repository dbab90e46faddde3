internal import Cryptography
internal import Glibc
internal import System

/// The chain's end, written again after each turn, so that the next start notices if the log has lost lines at its end.
///
/// It is not synced: after a power cut it may be older than the log, which the start then goes through. What is in it is no
/// secret. Used by one thread at a time.
struct HeadFile: ~Copyable, Sendable {
    private let descriptor: FileDescriptor
    private var text: [UInt8] = []

    /// A chain's end, and the period of the line that follows it.
    struct Place {
        let head: ChainHead
        let period: UInt64
    }

    private static let digits = 20
    /// More lines than any log has: a larger number comes from damage, and counting on from it could overflow.
    private static let sequenceLimit: UInt64 = 1 << 62
    private static let length = 2 * (digits + 1) + Base64URL.length(of: ChainHead.macLength) + 1

    init(_ path: String) throws(AuditError) {
        do throws(SystemError) {
            descriptor = try FileDescriptor(openingOrCreating: path)
        } catch {
            throw .file(path: path, error)
        }
        text.reserveCapacity(Self.length)
    }

    /// Nil in a new file, and if something else is there.
    func load() -> Place? {
        guard let bytes = try? BlockingIO.read(from: descriptor.number, at: 0, count: Self.length),
            bytes.count == Self.length
        else { return nil }
        let words = bytes.dropLast().split(separator: UInt8(ascii: " "))
        guard words.count == 3, let sequence = UInt64(String(decoding: words[0], as: UTF8.self)),
            sequence < Self.sequenceLimit,
            let period = UInt64(String(decoding: words[1], as: UTF8.self)),
            let mac = Base64URL.decode(Array(words[2]).span), mac.count == ChainHead.macLength
        else { return nil }
        return Place(head: ChainHead(sequence: sequence, mac: mac), period: period)
    }

    /// A failure has no consequence but that a start notices less.
    mutating func save(_ head: borrowing ChainHead, period: UInt64) {
        text.removeAll(keepingCapacity: true)
        append(head.sequence)
        append(period)
        Base64URL.append(head.mac.span, to: &text)
        text.append(UInt8(ascii: "\n"))
        try? BlockingIO.write(text[...], to: descriptor.number, at: 0)
    }

    /// Appends a number in as many digits as the largest one has, so that a text replaces all of the one before.
    private mutating func append(_ number: UInt64) {
        var (rest, divisor) = (number, UInt64(10_000_000_000_000_000_000))
        while divisor > 0 {
            text.append(UInt8(ascii: "0") + UInt8(rest / divisor))
            rest %= divisor
            divisor /= 10
        }
        text.append(UInt8(ascii: " "))
    }
}
