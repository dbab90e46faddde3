extension StoreURL {
    /// Why a URL is refused; says what to do about it, and nothing of the text itself, which may contain a password.
    package enum Fault: Error, Hashable, CustomStringConvertible {
        case scheme
        /// A password between the user and the host, or the parameter `password`.
        case password
        /// Another parameter that is a secret.
        case secret(parameter: String)
        case blank
        case at
        case bracket
        case port
        case parameter
        case encoding

        /// Parameters that are secrets, with the case for each.
        init?(secretParameter name: String) {
            switch name {
            case "password": self = .password
            case "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key":
                self = .secret(parameter: name)
            default: return nil
            }
        }

        /// To be read after the name of the setting.
        package var description: String {
            switch self {
            case .scheme:
                """
                does not begin with postgresql:// or postgres://, as in \(StoreURL.example); what it is instead is not shown, \
                as it may contain a password
                """
            case .password:
                """
                has a password in it, which check-config, the status page and the process list would show; remove it from the \
                URL, and name a file with it there (passfile=PATH), or set PGPASSWORD or PGPASSFILE in the environment, or \
                give the service the systemd credential \(Settings.Store.passwordCredential)
                """
            case .secret(let parameter):
                """
                has the secret \(parameter) in it, which check-config, the status page and the process list would show; \
                remove it from the URL, and name a section of a connection service file with it there (service=NAME, and \
                PGSERVICEFILE in the environment)
                """
            case .blank: "has a blank or a control character in it; write %20 for a blank"
            case .at:
                """
                has an @ behind its hosts, or more than one; write %40 for an @, and %2F for a / in the name of the user, as \
                in \(StoreURL.example)
                """
            case .bracket:
                "has an IPv6 address that is not in brackets of its own, as in postgresql://[2001:db8::1]:5432/tokens"
            case .port: "has a port that is no number from 1 to 65535, or another number of ports than of hosts"
            case .parameter:
                "has something behind its ? that is not a name, one = and a value, as in ?sslmode=verify-full&user=a"
            case .encoding:
                "has a % that two hexadecimal digits do not follow, or bytes that are not UTF-8; write %25 for a %"
            }
        }
    }

    /// For messages.
    static let example = "postgresql://token_cache@db1,db2/tokens?sslmode=verify-full"
}
