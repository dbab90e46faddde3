import Foundation

/// What an app can do about an error.
public enum TokenErrorCategory: Sendable, Hashable {
    /// There is nothing to do: the user or the app has given up, or the session has ended meanwhile, which an event tells.
    case cancelled
    /// The same call may succeed later; with the time to wait if the server has said it.
    case retryLater(after: Duration?)
    /// The user has to log in, or to log in again.
    case logInAgain
    /// The server refuses the session that the app's server has made, and the app's closure has no other one: the user has to log
    /// in to the app again.
    case appSessionEnded
    /// The same call succeeds after the user has unlocked the device.
    case deviceLocked
    /// Trying again does not help: there is a mistake in the app or in the server's settings.
    case programFault
    /// An error of the app's own, from one of its closures, caches or transports, or a limited login.
    case other

    /// The category of any error that this library throws or tells.
    public init(_ error: any Error) {
        switch error {
        case let error as TokenCacheError: self = error.category
        case let error as TokenSessionError: self = error.category
        case is CancellationError, URLError.cancelled: self = .cancelled
        case is URLError: self = .retryLater(after: nil)
        default: self = .other
        }
    }
}

extension TokenCacheError {
    /// What an app can do about the error.
    public var category: TokenErrorCategory {
        switch self {
        case .invalidURL, .invalidID, .laterFormat: .programFault
        // Plain http that the system refuses to send.
        case .unreachable(code: -1_022, _): .programFault
        case .unreachable, .timedOut, .redirected, .unexpectedAnswer, .storage: .retryLater(after: nil)
        case .unavailable(_, let time): .retryLater(after: time)
        case .unauthorized, .forbidden: .appSessionEnded
        // 408: the request took too long on its way.
        case .refused(let status, let code, _):
            (400..<500).contains(status) && status != 408 || status == 200 && code != "50001"
                ? .programFault : .retryLater(after: nil)
        case .conflict(let current): current == nil ? .logInAgain : .retryLater(after: .zero)
        case .unreadable: .logInAgain
        case .locked: .deviceLocked
        }
    }

    /// Whether the same request would be refused again, until the app, the session or the server changes.
    var isPermanent: Bool { category == .programFault || category == .appSessionEnded }
}

extension TokenSessionError {
    /// What an app can do about the error.
    public var category: TokenErrorCategory {
        switch self {
        case .notOpen, .expired, .invalidGrant: .logInAgain
        case .closed, .otherUser: .cancelled
        case .blankToken: .programFault
        case .limitedLogin: .other
        }
    }
}
