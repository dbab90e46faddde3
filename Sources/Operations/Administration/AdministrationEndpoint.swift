/// The paths of the administration: what each is for, and who may use it over TCP.
///
/// On the control socket, which only the server's user and root can use, all of them are for everybody.
enum AdministrationEndpoint: String, CaseIterable {
    case page = "/"
    case status = "/status"
    case history = "/history"
    case log = "/log"
    case settings = "/settings"
    case health = "/healthz"
    case readiness = "/readyz"
    case metrics = "/metrics"
    case key = "/key"
    case reload = "/reload"
    case drain = "/drain"
    case token = "/token"
    case tokenDeletion = "/token/delete"

    /// What a request over TCP needs in order to be answered.
    enum Requirement: Hashable {
        /// No key, whatever the settings say: the endpoint shows no data, or it is for probes.
        case nothing
        /// With `admin.read: key` an admin key of any scope, otherwise nothing.
        case reading
        /// An admin key of any scope.
        case key
        /// An admin key with the scope `steer`.
        case steering
    }

    var requirement: Requirement {
        switch self {
        case .page, .health, .readiness: .nothing
        case .status, .history, .log, .settings, .metrics: .reading
        case .key: .key
        case .reload, .drain, .token, .tokenDeletion: .steering
        }
    }

    /// Whether it changes the server's state or takes an id, so that a page of another site must not cause it by GET.
    var isAction: Bool { requirement == .steering }

    var methods: [String] { isAction ? ["POST"] : ["GET", "HEAD"] }
}
