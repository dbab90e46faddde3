import Testing
import TokenStore

@testable import Settings

@Suite struct StoreURLTests {
    private func fault(_ text: String) -> StoreURL.Fault? {
        do {
            _ = try StoreURL(text)
            return nil
        } catch {
            return error
        }
    }

    #if PostgreSQL
    /// Each with the password `s3cret`, which no message may contain.
    private static let refused: [(String, StoreURL.Fault)] = [
        ("host=db user=u password=s3cret", .scheme), ("mysql://u:s3cret@db/tokens", .scheme),
        ("POSTGRESQL://u:s3cret@db/tokens", .scheme), (" postgresql://u:s3cret@db/tokens", .scheme),
        ("postgresql://u:s3cret@db/tokens", .secret(parameter: "password")),
        ("postgres://u:%73%33cret@db", .secret(parameter: "password")),
        ("postgresql://:s3cret@db", .secret(parameter: "password")),
        ("postgresql://u:a:s3cret@db", .secret(parameter: "password")),
        ("postgresql://u@db/tokens?password=s3cret", .secret(parameter: "password")),
        ("postgresql://u@db/tokens?pass%77ord=s3cret", .secret(parameter: "password")),
        ("postgresql://u@db/tokens?password=", .secret(parameter: "password")),
        ("postgresql://u@db?sslpassword=s3cret", .secret(parameter: "sslpassword")),
        // A password with signs that end it: the rest would be the name of a host, a port or a database.
        ("postgresql://u:a@s3cret@db/tokens", .at), ("postgresql://u@s3cret@db/tokens", .at),
        ("postgresql://u:s3cret?b@db/tokens", .at), ("postgresql://u:12/s3cret@db/tokens", .at),
        ("postgresql://u:s3cret/b/tokens", .port), ("postgresql://u:s3cret", .port),
        ("postgresql://db:0/", .port), ("postgresql://db:65536/", .port), ("postgresql://db:+1/", .port),
        ("postgresql://a,b,c/s3cret?port=1,2", .port),
        ("postgresql://u@d b/s3cret", .blank), ("postgresql://u@db/s3cret\n", .blank),
        ("postgresql://[::1/s3cret", .unreadable), ("postgresql://db/?s3cret", .unreadable),
        ("postgresql://db/s3cret%zz", .unreadable), ("postgresql://db/s3cret%00", .unreadable),
        ("postgresql://db/?s3cret=1", .unreadable),
    ]

    @Test(arguments: refused)
    func `what cannot be used or shown is refused, and no error shows it`(text: String, expected: StoreURL.Fault) {
        #expect(fault(text) == expected)
        let errors = [
            SettingsLoader(environment: ["TOKEN_CACHE_STORE_URL": text]), SettingsLoader(flags: ["store.url": [text]]),
            SettingsLoader(flags: ["store.url": [text, text]]),
        ].map { loader in
            do {
                _ = try loader.load()
                return "accepted"
            } catch {
                return "\(error)"
            }
        }
        #expect(errors[0] == "environment: TOKEN_CACHE_STORE_URL \(expected)")
        #expect(errors[1] == "command line: store.url \(expected)")
        #expect(errors[2] == "command line: store.url has several values; allowed is one")
        #expect(errors.allSatisfy { !$0.contains("s3cret") })
    }

    @Test func `several hosts are there so that one may be lost`() throws {
        let cases: [(String, StoreDurability)] = [
            ("postgresql://db/tokens", .local), ("postgresql:///tokens", .local),
            ("postgresql://a,b/tokens", .synchronous), ("postgresql:///tokens?host=a,b", .synchronous),
            ("postgresql://db/tokens?hostaddr=192.0.2.1,192.0.2.2", .synchronous),
        ]
        for (text, durability) in cases { #expect(try StoreURL(text).durability == durability, "\(text)") }
        let named: [(String, [String])] = [
            ("postgresql:///tokens?host=a,b&hostaddr=,192.0.2.2&port=1,2", ["a  1", "b 192.0.2.2 2"]),
            ("postgresql://a,b/tokens", ["a  5432", "b  5432"]), ("postgresql://a,b:1/tokens", ["a  5432", "b  1"]),
            ("postgresql://a:/tokens", ["a  5432"]), ("postgresql:///tokens?host=a,b&port=1", ["a  1", "b  1"]),
        ]
        for (text, hosts) in named {
            #expect(try StoreURL(text).hosts.map { "\($0.name) \($0.address) \($0.port)" } == hosts, "\(text)")
        }
    }

    @Test func `connections to other machines that verify no names are weak`() throws {
        let cases: [(String, String?)] = [
            ("postgresql://db/tokens", "db have sslmode prefer"),
            ("postgresql://a,b/tokens?sslmode=require", "a, b have sslmode require"),
            ("postgresql://db/tokens?ssl=true", "db have sslmode require"),
            ("postgresql://db/tokens?sslmode=verify-ca", "db have sslmode verify-ca"),
            ("postgresql://localhost,db,/tokens", "on db have"),
            ("postgresql://db/tokens?sslmode=verify-full", nil), ("postgresql://db/tokens?sslrootcert=system", nil),
            ("postgresql://db/tokens?gssencmode=require", nil),
            ("postgresql://LOCALHOST,127.0.0.9,[::1],%2Frun/tokens", nil),
            ("postgresql:///tokens?host=%40a", nil), ("postgresql://db/tokens?hostaddr=127.0.0.1", nil),
            ("postgresql://localhost/tokens?hostaddr=192.0.2.1", "on localhost have"),
            ("postgresql:///tokens?hostaddr=192.0.2.1", "on 192.0.2.1 have"),
        ]
        for (text, expected) in cases {
            let found = try StoreURL(text).weakEncryption?.fault
            #expect((found == nil) == (expected == nil), "\(text)")
            if let expected { #expect(found?.contains(expected) == true, "\(found ?? "")") }
        }
    }
    #else
    @Test func `without PostgreSQL every URL is refused`() {
        #expect(fault("postgresql://db/tokens") == .unsupported)
    }
    #endif

    @Test func `a refused password says where passwords go`() {
        let text = "\(StoreURL.Fault.secret(parameter: "password"))"
        for place in ["passfile=", "PGPASSWORD", "PGPASSFILE", "token-cache.postgresql-password"] {
            #expect(text.contains(place))
        }
    }
}
