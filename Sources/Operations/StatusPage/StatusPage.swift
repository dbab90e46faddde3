/// The page at `/` of the administration: a single self-contained document, which requests `/status` and
/// `/history` every second.
enum StatusPage {
    /// The answer with the page.
    ///
    /// Each answer has a new nonce, with which only the page's own style and script are allowed (CSP Level 3, section 6.7.3).
    static var answer: AdministrationAnswer {
        // The first hexadecimal digit is not 0, so that every nonce has 32 digits.
        let nonce = String(UInt128.random(in: 1 << 124...UInt128.max), radix: 16)
        var answer = AdministrationAnswer(
            mediaType: "text/html; charset=utf-8", text: parts.joined(separator: nonce)
        )
        answer.fields = [
            """
            Content-Security-Policy: default-src 'none'; script-src 'nonce-\(nonce)'; style-src 'nonce-\(nonce)'; \
            connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'
            """,
            "Referrer-Policy: no-referrer", "Cross-Origin-Resource-Policy: same-origin",
            "Cross-Origin-Opener-Policy: same-origin",
        ]
        return answer
    }

    /// The parts of the page between which the nonce belongs.
    ///
    /// Split once: to search 50 kB for each answer would take a third of a millisecond.
    private static let parts: [Substring] = {
        // In this order, because each script uses the ones before it while it is loaded.
        let script = [
            PackageResources.formats_js, PackageResources.history_js, PackageResources.scale_js,
            PackageResources.chart_js, PackageResources.panels_js, PackageResources.tables_js,
            PackageResources.settings_js, PackageResources.page_js,
        ]
        return text(PackageResources.page_html)
            .replacing("{style}", with: text(PackageResources.page_css))
            .replacing("{script}", with: script.map(text).joined(separator: "\n"))
            .split(separator: "{nonce}", omittingEmptySubsequences: false)
    }()

    private static func text(_ bytes: [UInt8]) -> String {
        String(decoding: bytes, as: UTF8.self)
    }
}
