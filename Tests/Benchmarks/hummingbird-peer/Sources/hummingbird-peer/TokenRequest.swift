import Hummingbird

/// A context whose bodies are forms.
struct TokenRequestContext: RequestContext {
    var coreContext: CoreRequestContextStorage

    init(source: ApplicationRequestContextSource) {
        coreContext = CoreRequestContextStorage(source: source)
    }

    var requestDecoder: URLEncodedFormDecoder { URLEncodedFormDecoder() }
}

/// The body of a POST.
struct TokenForm: Decodable {
    let uniqueID: String
    let tokenInfo: String

    enum CodingKeys: String, CodingKey {
        case uniqueID = "unique_id"
        case tokenInfo = "token_info"
    }
}
