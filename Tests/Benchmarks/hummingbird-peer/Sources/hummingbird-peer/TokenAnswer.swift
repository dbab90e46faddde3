import Hummingbird

/// The contract's JSON; what is nil is left out.
struct TokenAnswer: ResponseEncodable {
    let status: String
    var tokenInfo: String?
    var errorCode: String?
    var errorMessage: String?

    static let invalidInput = TokenAnswer(
        status: "false", errorCode: "30001", errorMessage: "Invalid data input."
    )
    static let notFound = TokenAnswer(
        status: "false", errorCode: "50002", errorMessage: "Could not read file contents or data empty."
    )

    enum CodingKeys: String, CodingKey {
        case status
        case tokenInfo = "token_info"
        case errorCode
        case errorMessage
    }
}
