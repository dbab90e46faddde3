/// Takes an answer's bytes apart, as a strict client does.
struct AnswerReader {
    struct Answer {
        var status = 0
        var closes = false
        /// Bytes of the body; nil if the head has no length, as after a HEAD.
        var length: Int?
        var body: ArraySlice<UInt8> = []
        /// The number of `errorCode`; 0 without one.
        var errorCode = 0
    }

    private var bytes: [UInt8] = []
    private var head: Answer?
    /// The bytes of the head.
    private var headLength = 0

    /// Whether the beginning of an answer is there.
    var hasPart: Bool { !bytes.isEmpty }

    mutating func append(_ new: UnsafeRawBufferPointer) { bytes.append(contentsOf: new) }

    /// The next whole answer; nil if it has not arrived.
    mutating func next() -> Answer? {
        if head == nil { readHead() }
        guard var answer = head else { return nil }
        let length = answer.length ?? 0
        guard bytes.count >= headLength + length else { return nil }
        answer.body = bytes[headLength..<headLength + length]
        answer.errorCode = Self.errorCode(in: answer.body)
        bytes = Array(bytes[(headLength + length)...])
        head = nil
        return answer
    }

    private mutating func readHead() {
        guard let end = Self.endOfHead(bytes) else { return }
        let lines = String(decoding: bytes[..<(end - 4)], as: UTF8.self).split(separator: "\r\n")
        let first = lines[0].split(separator: " ")
        guard first.count >= 3, first[0] == "HTTP/1.1", let status = Int(first[1]) else {
            violation("an answer begins with \(lines[0].debugDescription)")
        }
        var answer = Answer(status: status)
        for line in lines.dropFirst() {
            if line == "Connection: close" { answer.closes = true }
            if line.hasPrefix("Content-Length: ") { answer.length = Int(line.dropFirst(16)) }
        }
        (head, headLength) = (answer, end)
    }

    private static func endOfHead(_ bytes: [UInt8]) -> Int? {
        bytes.withUnsafeBufferPointer { bytes in
            var index = 3
            while index < bytes.count {
                if bytes[index] == 10, bytes[index - 1] == 13, bytes[index - 2] == 10, bytes[index - 3] == 13 {
                    return index + 1
                }
                index += 1
            }
            return nil
        }
    }

    private static let codeStart = Array(#"{"status":"false","errorCode":""#.utf8)

    private static func errorCode(in body: ArraySlice<UInt8>) -> Int {
        guard body.starts(with: codeStart) else { return 0 }
        return Int(String(decoding: body.dropFirst(codeStart.count).prefix(5), as: UTF8.self)) ?? 0
    }
}
