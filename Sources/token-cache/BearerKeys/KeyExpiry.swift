import ArgumentParser
import Settings
import TokenStore

/// When a key expires, as an argument.
enum KeyExpiry: ExpressibleByArgument {
    case after(Int64)
    case at(Int64)

    init?(argument: String) {
        // A number without a unit could be meant as days or as a year.
        if let time = Quantities.duration(argument), time >= .seconds(1), Int(argument) == nil {
            self = .after(time.components.seconds)
        } else if let date = Self.seconds(argument) ?? Self.seconds(argument + "T00:00:00Z") {
            self = .at(date)
        } else {
            return nil
        }
    }

    private static func seconds(_ text: String) -> Int64? { ExpirationDate.seconds(Array(text.utf8).span) }

    /// In seconds since 1970.
    func date(from now: Int64) -> Int64 {
        switch self {
        case .after(let seconds): now + seconds
        case .at(let date): date
        }
    }
}
