import HTTP

/// What a reader made of some input: its requests and how it ended.
struct Reading: Equatable, CustomStringConvertible {
    var requests: [String] = []
    var continues = 0
    var end = ""

    var description: String { "\(requests) \(end)" }
}

/// Feeds input in pieces of the given sizes (the rest at once) and describes all that comes out.
func read(
    _ input: [UInt8], pieces: [Int] = [], limits: RequestLimits = RequestLimits(), releasesRoom: Bool = false
) -> Reading {
    var reader = RequestReader(limits: limits)
    var reading = Reading()
    var rest = input[...]
    var sizes = pieces[...]
    while true {
        switch reader.next() {
        case .request:
            reading.requests.append(describe(reader.request, in: reader.requestBytes))
            reader.finishRequest()
        case .sendContinue:
            reading.continues += 1
        case .refused(let refusal):
            reading.end = "refused \(refusal)"
            return reading
        case .needsMore(let part):
            guard !rest.isEmpty else {
                reading.end = "needs more: \(part)"
                return reading
            }
            let size = min(sizes.popFirst() ?? rest.count, rest.count)
            if releasesRoom { reader.releaseRoom() }
            _ = reader.makeRoom()
            reader.bytes.append(contentsOf: rest.prefix(max(size, 1)))
            rest = rest.dropFirst(max(size, 1))
        }
    }
}

func describe(_ request: Request, in bytes: Span<UInt8>) -> String {
    let head = request.head
    let target = "\(bytes.text(head.path))?\(bytes.text(head.query))"
    return
        "\(bytes.text(head.methodName)) \(target) \(head.keepsAlive ? "keep" : "close") [\(bytes.text(request.body))]"
}

func read(_ text: String, pieces: [Int] = [], limits: RequestLimits = RequestLimits()) -> Reading {
    read(Array(text.utf8), pieces: pieces, limits: limits)
}
