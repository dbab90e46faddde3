import EventLoop
import FoundationEssentials
import HTTP
import Synchronization
import System
import TokenStore

extension AdministrationConnection {
    /// The shortest time between two progress lines.
    private static let progressInterval = Duration.milliseconds(100)
    /// The time between two empty lines, which say that the server still works: commands give up one of which they hear nothing.
    private static let lifeInterval = Nanoseconds(.seconds(5))

    /// Performs a request, and sends its progress and its reply.
    mutating func run<Request: StoreRequest>(_ type: Request.Type, for requester: Requester) async {
        // Its own, as two long commands could occupy all of Swift's shared threads, and delay everything else that runs there.
        let (thread, body) = (BlockingExecutor(label: "command"), takeBody())
        let request: Request
        do {
            request = try await Task(executorPreference: thread) {
                // An empty body stands for a request without parameters.
                try OperationsJSON.decode(type, from: body.isEmpty ? Data("{}".utf8) : Data(body))
            }.value
        } catch {
            return await refuse(.badRequest, "the body is not the JSON of this request: \(Self.reason(error))")
        }
        guard await send(AdministrationAnswer.beginningOfLines) else { return }
        let (lines, continuation) = AsyncStream.makeStream(of: [UInt8].self, bufferingPolicy: .unbounded)
        let work = Task(executorPreference: thread) { [store = endpoints.store(for: requester), endpoints] in
            let clock = Mutex(ContinuousClock.now)
            var store = store
            store.progress = { progress in
                let isDue = clock.withLock { last in
                    guard ContinuousClock.now - last >= Self.progressInterval else { return false }
                    last = .now
                    return true
                }
                if isDue { continuation.yield(Self.text(ControlLine<NoReply>(progress: progress))) }
            }
            let line: ControlLine<Request.Reply>
            do throws(StoreError) {
                let reply = try await request.answer(store)
                line = ControlLine(reply: reply)
                if let act = request.act(reply) { endpoints.log(act, by: requester) }
            } catch {
                endpoints.log(error, of: type.name.replacing("/", with: " "), by: requester)
                line = ControlLine(error: "\(error)")
            }
            continuation.yield(Self.text(line))
            continuation.finish()
        }
        let watch = Task(executorPreference: loop) { [loop] in
            var next = loop.now + Self.lifeInterval
            // When the server stops, the work is cancelled: every request may end at any point.
            while !loop.isDraining && !Task.isCancelled {
                await loop.sleep(until: loop.now + Nanoseconds(Self.progressInterval))
                guard next <= loop.now else { continue }
                next = loop.now + Self.lifeInterval
                continuation.yield(Self.text(ControlLine<NoReply>()))
            }
            work.cancel()
            continuation.finish()
        }
        for await line in lines {
            // If this fails, the command has ended, and nothing waits for the reply.
            guard await send(line) else { break }
        }
        work.cancel()
        watch.cancel()
        // Wait until the work has cleaned up: the server may end as soon as all connections have ended.
        await work.value
    }

    private static func text(_ line: some Encodable) -> [UInt8] {
        guard let text = try? OperationsJSON.encode(line) else { return [] }
        return Array(text) + [UInt8(ascii: "\n")]
    }

    /// What is wrong with the JSON, without any of its values.
    private static func reason(_ error: any Error) -> String {
        switch error as? DecodingError {
        case .keyNotFound(let key, _): "\(key.stringValue) is missing"
        case .typeMismatch(_, let context), .valueNotFound(_, let context):
            "\(context.codingPath.map(\.stringValue).joined(separator: ".")) is of the wrong type"
        default: "it cannot be read"
        }
    }
}
