#if TokenRefresh
import CCurl
import Glibc
import System

/// One request to the provider, by libcurl (curl.se/libcurl/c/).
///
/// No redirects, one connection for each request, limits on time and bytes; certificates are verified against the system's
/// authorities, or those of SSL_CERT_FILE.
enum ProviderCall {
    /// Less than others wait for a mark, and than systemd waits for a server that stops.
    static let timeLimit = Duration.seconds(10)
    private static let connectLimit = Duration.seconds(5)
    /// Bytes of an answer.
    private static let bodyLimit = 64 << 10

    /// CURLOPT_QUICK_EXIT, which libcurl and its header have since 7.87; an earlier one refuses it.
    private static let quickExit = CURLoption(rawValue: 322)

    private static let isInitialized = curl_global_init(Int(CURL_GLOBAL_DEFAULT)) == CURLE_OK

    /// Sends a request on a thread of its own, and waits for its answer.
    static func response(to request: RefreshProvider.Request) async -> ProviderResponse {
        await withCheckedContinuation { continuation in
            do throws(ThreadShortage) {
                try NamedThread.start("refresh") { continuation.resume(returning: perform(request)) }
            } catch {
                continuation.resume(returning: .notSent(.unreachable))
            }
        }
    }

    /// Blocks its thread.
    private static func perform(_ request: consuming RefreshProvider.Request) -> ProviderResponse {
        var request = request
        defer { request.wipe() }
        guard isInitialized, let handle = unsafe curl_easy_init() else { return .notSent(.unreachable) }
        defer { unsafe curl_easy_cleanup(handle) }
        var fields = unsafe curl_slist_append(nil, "Accept: application/json")
        defer { unsafe curl_slist_free_all(fields) }
        if !request.authorization.isEmpty { unsafe fields = curl_slist_append(fields, request.authorization) }
        let answer = Answer()
        let code = unsafe request.body.withUnsafeBufferPointer { body -> CURLcode in
            guard unsafe configure(handle, request, body.baseAddress, fields, answer) else { return CURLE_FAILED_INIT }
            return unsafe curl_easy_perform(handle)
        }
        let status = unsafe ccurl_number(handle, CURLINFO_RESPONSE_CODE)
        if status >= 200 {
            let seconds = unsafe ccurl_large_number(handle, CURLINFO_RETRY_AFTER)
            return .answered(
                status: status, body: answer.body, isComplete: code == CURLE_OK,
                retryAfter: seconds > 0 ? Int(seconds) : nil)
        }
        // The size includes what was sent to a proxy before the TLS handshake, so the handshake counts as well.
        guard
            unsafe (request.isClear || ccurl_large_number(handle, CURLINFO_APPCONNECT_TIME_T) > 0)
                && ccurl_number(handle, CURLINFO_REQUEST_SIZE) > 0
        else { return .notSent(.unreachable) }
        return .lost(code == CURLE_OPERATION_TIMEDOUT ? .timeout : .lost)
    }

    /// Returns false if libcurl has no memory.
    @unsafe private static func configure(
        _ handle: UnsafeMutableRawPointer, _ request: RefreshProvider.Request, _ body: UnsafePointer<UInt8>?,
        _ fields: UnsafeMutablePointer<curl_slist>?, _ answer: Answer
    ) -> Bool {
        var numbers: [(CURLoption, Int)] = [
            (CURLOPT_NOSIGNAL, 1),
            (CURLOPT_CONNECTTIMEOUT_MS, connectLimit.milliseconds), (CURLOPT_TIMEOUT_MS, timeLimit.milliseconds),
            // libcurl sends a request again if the connection that it has kept turns out to be closed, and with HTTP/2 in other cases
            // too. The provider may have received the first one.
            (CURLOPT_FRESH_CONNECT, 1), (CURLOPT_FORBID_REUSE, 1), (CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_1_1)),
            // Otherwise libcurl waits, beyond the time limit, for its thread that asks the nameservers.
            (quickExit, 1),
        ]
        if !request.body.isEmpty { numbers.append((CURLOPT_POST, 1)) }
        guard numbers.allSatisfy({ unsafe ccurl_set_number(handle, $0.0, $0.1) == CURLE_OK || $0.0 == quickExit }),
            unsafe ccurl_set_text(handle, CURLOPT_URL, request.url) == CURLE_OK,
            // Without the field Accept-Encoding, the provider may choose any encoding (RFC 9110, section 12.5.3). The empty text stands
            // for all that libcurl can decode.
            unsafe ccurl_set_text(handle, CURLOPT_ACCEPT_ENCODING, "") == CURLE_OK,
            unsafe ccurl_set_headers(handle, fields) == CURLE_OK
        else { return false }
        if let body = unsafe body, !request.body.isEmpty {
            let text = unsafe UnsafeRawPointer(body).assumingMemoryBound(to: CChar.self)
            guard unsafe ccurl_set_text(handle, CURLOPT_POSTFIELDS, text) == CURLE_OK else { return false }
        }
        // A proxy is for other machines.
        if request.isClear { guard unsafe ccurl_set_text(handle, CURLOPT_PROXY, "") == CURLE_OK else { return false } }
        if let path = unsafe getenv("SSL_CERT_FILE") {
            guard unsafe ccurl_set_text(handle, CURLOPT_CAINFO, path) == CURLE_OK else { return false }
        }
        let receiver: ccurl_receiver = { bytes, _, count, context in
            guard let bytes = unsafe bytes, let context = unsafe context else { return 0 }
            let answer = unsafe Unmanaged<Answer>.fromOpaque(context).takeUnretainedValue()
            return unsafe answer.take(UnsafeRawBufferPointer(start: bytes, count: count))
        }
        return unsafe ccurl_set_receiver(handle, receiver, Unmanaged.passUnretained(answer).toOpaque()) == CURLE_OK
    }

    /// Takes the body of an answer; used by the call's thread.
    private final class Answer {
        private(set) var body: [UInt8] = []

        /// Returns the number of bytes if there is room for them, and otherwise 0, which ends the transfer.
        @unsafe func take(_ bytes: UnsafeRawBufferPointer) -> Int {
            guard body.count + bytes.count <= ProviderCall.bodyLimit else { return 0 }
            unsafe body += bytes
            return bytes.count
        }
    }
}

extension Duration {
    fileprivate var milliseconds: Int { Int(self / .milliseconds(1)) }
}
#endif
