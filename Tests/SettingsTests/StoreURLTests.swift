import Testing
import TokenStore

@testable import Settings

@Suite struct StoreURLTests {
    private func host(_ name: String, _ port: Int? = nil) -> StoreURL.Host { StoreURL.Host(name: name, port: port) }

    private func fault(_ text: String) -> StoreURL.Fault? {
        do {
            _ = try StoreURL(text)
            return nil
        } catch {
            return error
        }
    }

    @Test func `hosts have a port each, one for all of them, or none`() throws {
        let cases: [(String, [StoreURL.Host])] = [
            ("postgresql://", []), ("postgresql:///tokens", []), ("postgres://db", [host("db")]),
            ("postgresql://db:6432/tokens", [host("db", 6432)]),
            ("postgresql://a,b:6432,c/tokens", [host("a"), host("b", 6432), host("c")]),
            ("postgresql://u@a,b/tokens?port=6432", [host("a", 6432), host("b", 6432)]),
            ("postgresql://[2001:db8::1]:5433,[::1]/tokens", [host("2001:db8::1", 5433), host("::1")]),
            ("postgresql://[fe80::1%25eth0]", [host("fe80::1%eth0")]),
            ("postgresql://%2Frun%2Fpostgresql/tokens", [host("/run/postgresql")]),
            ("postgresql:///tokens?host=/run/postgresql&port=5433", [host("/run/postgresql", 5433)]),
            ("postgresql://a/tokens?host=b,c&port=1,2", [host("b", 1), host("c", 2)]),
            ("postgresql://:5433/tokens", [host("", 5433)]), ("postgresql:///tokens?port=5433", [host("", 5433)]),
            ("postgresql://a,/tokens", [host("a"), host("")]), ("postgresql://a%2Cb/tokens", [host("a,b")]),
        ]
        for (text, hosts) in cases { #expect(try StoreURL(text).hosts == hosts, "\(text)") }
    }

    @Test func `the user, the database and the parameters are decoded`() throws {
        let text = "postgresql://token%40x@db/my%20tokens?options=-csearch_path%3Da%26b&sslmode=verify-full"
        let url = try StoreURL(text)
        #expect(url.user == "token@x" && url.database == "my tokens")
        #expect(url.parameters == ["options": "-csearch_path=a&b", "sslmode": "verify-full"])
        let bare = try StoreURL("postgresql://db?user=a&dbname=b&application_name=")
        #expect(bare.user == nil && bare.database == "b" && bare.parameters["application_name"] == "")
        #expect(try StoreURL("postgresql://u:@db/").user == "u", "an empty password is none")
        #expect(try StoreURL("postgresql://db/a/b?ssl=true").database == "a/b")
        #expect(try StoreURL("postgresql://db/a?ssl=true").parameters == ["sslmode": "require"])
        #expect(try StoreURL("postgresql://db/a?port=1&port=2").hosts == [host("db", 2)])
    }

    /// Each with the password `s3cret`, which no message may contain.
    private static let refused: [(String, StoreURL.Fault)] = [
        ("host=db user=u password=s3cret", .scheme), ("mysql://u:s3cret@db/tokens", .scheme),
        ("POSTGRESQL://u:s3cret@db/tokens", .scheme), (" postgresql://u:s3cret@db/tokens", .scheme),
        ("postgresql://u:s3cret@db/tokens", .password), ("postgres://u:%73%33cret@db", .password),
        ("postgresql://:s3cret@db", .password), ("postgresql://u:a:s3cret@db", .password),
        ("postgresql://u:s3cret?b@db/tokens", .password), ("postgresql://u@db/tokens?password=s3cret", .password),
        ("postgresql://u@db/tokens?pass%77ord=s3cret", .password), ("postgresql://u@db/tokens?password=", .password),
        ("postgresql://u@db?sslpassword=s3cret", .secret(parameter: "sslpassword")),
        ("postgresql://u@db?oauth_client_secret=s3cret", .secret(parameter: "oauth_client_secret")),
        ("postgresql://u@db?scram_client_key=s3cret", .secret(parameter: "scram_client_key")),
        // A password with signs that end it: the rest would be the name of a host, a port or a database.
        ("postgresql://u:a@s3cret@db/tokens", .password), ("postgresql://u@s3cret@db/tokens", .at),
        ("postgresql://u:12/s3cret@db/tokens", .at), ("postgresql://u:s3cret/b/tokens", .port),
        ("postgresql://u:s3cret", .port), ("postgresql://db:0/", .port), ("postgresql://db:65536/", .port),
        ("postgresql://db:+1/", .port), ("postgresql://a,b/?port=1,2,3", .port),
        ("postgresql://u@d b/s3cret", .blank), ("postgresql://u@db/s3cret\n", .blank),
        ("postgresql://[::1/tokens", .bracket), ("postgresql://[]/tokens", .bracket),
        ("postgresql://[::1]x/", .bracket),
        ("postgresql://db/?s3cret", .parameter), ("postgresql://db/?a=b=s3cret", .parameter),
        ("postgresql://db/s3cret%", .encoding), ("postgresql://db/s3cret%0", .encoding),
        ("postgresql://db/s3cret%zz", .encoding), ("postgresql://db/s3cret%00", .encoding),
        ("postgresql://db/s3cret%ff", .encoding), ("postgresql://db/s3cret%+1", .encoding),
    ]

    @Test(arguments: refused)
    func `what libpq would misread, and what must not be shown, is refused`(text: String, expected: StoreURL.Fault) {
        #expect(fault(text) == expected)
    }

    @Test(arguments: refused)
    func `no error shows a password, from wherever the URL comes`(text: String, expected: StoreURL.Fault) {
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

    @Test func `a refused password says where passwords go`() {
        let text = "\(StoreURL.Fault.password)"
        for place in ["passfile=", "PGPASSWORD", "PGPASSFILE", "token-cache.postgresql-password"] {
            #expect(text.contains(place))
        }
    }

    @Test func `several hosts are there so that one may be lost`() throws {
        let cases: [(String, [String: String], StoreDurability)] = [
            ("postgresql://db/tokens", [:], .local), ("postgresql:///tokens", [:], .local),
            ("postgresql://a,b/tokens", [:], .synchronous), ("postgresql:///tokens?host=a,b", [:], .synchronous),
            ("postgresql://db/tokens?hostaddr=192.0.2.1,192.0.2.2", [:], .synchronous),
            ("postgresql:///tokens", ["PGHOST": "a,b"], .synchronous),
            ("postgresql:///tokens", ["PGHOST": "a"], .local),
            ("postgresql://:5432/tokens", ["PGHOST": "a,b"], .synchronous),
            ("postgresql://db/tokens", ["PGHOST": "a,b"], .local), ("postgresql:///tokens", ["PGHOST": ""], .local),
        ]
        for (text, environment, durability) in cases {
            #expect(try StoreURL(text).durability(environment) == durability, "\(text) \(environment)")
        }
    }

    @Test func `connections to other machines that verify no names are weak`() throws {
        let cases: [(String, [String: String], String?)] = [
            ("postgresql://db/tokens", [:], "db have sslmode prefer"),
            ("postgresql://a,b/tokens?sslmode=require", [:], "a, b have sslmode require"),
            ("postgresql://db/tokens?ssl=true", [:], "db have sslmode require"),
            ("postgresql://db/tokens?sslmode=verify-ca", [:], "db have sslmode verify-ca"),
            ("postgresql://localhost,db,/tokens", [:], "on db have"),
            ("postgresql://db/tokens?sslmode=verify-full", [:], nil),
            ("postgresql://db/tokens?sslrootcert=system", [:], nil),
            ("postgresql://db/tokens?sslrootcert=system&sslmode=require", [:], "sslmode require"),
            ("postgresql://db/tokens?gssencmode=require", [:], nil),
            ("postgresql://db/tokens", ["PGSSLMODE": "verify-full"], nil),
            ("postgresql://db/tokens", ["PGSSLMODE": ""], "sslmode prefer"),
            ("postgresql://db/tokens?sslmode=disable", ["PGSSLMODE": "verify-full"], "sslmode disable"),
            ("postgresql:///tokens", ["PGHOST": "db"], "on db have"), ("postgresql:///tokens", [:], nil),
            ("postgresql://LOCALHOST,127.0.0.9,[::1],%2Frun/tokens", [:], nil),
            ("postgresql:///tokens?host=%40a", [:], nil), ("postgresql://db/tokens?hostaddr=127.0.0.1", [:], nil),
            ("postgresql://localhost/tokens?hostaddr=192.0.2.1", [:], "on localhost have"),
            ("postgresql:///tokens?hostaddr=192.0.2.1", [:], "on 192.0.2.1 have"),
        ]
        for (text, environment, expected) in cases {
            let found = try StoreURL(text).weakEncryption(environment).map { "\($0)" }
            #expect((found == nil) == (expected == nil), "\(text) \(environment)")
            if let expected { #expect(found?.contains(expected) == true, "\(found ?? "")") }
        }
    }

    @Test func `every start of a URL is read or refused`() throws {
        let text = Array("postgresql://u%40x@a:1,[::1]:2,%2Frun/tokens?port=1,2,3&sslmode=verify-full".utf8)
        for count in text.indices {
            let start = try #require(String(validating: text[..<count], as: UTF8.self))
            guard let url = try? StoreURL(start) else { continue }
            #expect(url.hosts.count <= 3)
        }
        #expect(fault(String(decoding: text, as: UTF8.self)) == nil)
    }
}
