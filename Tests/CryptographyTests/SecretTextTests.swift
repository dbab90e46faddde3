import Cryptography
import Testing

struct SecretTextTests {
    private struct Holder {
        let password: SecretText?
    }

    @Test func `a secret is not printed, in whatever it is kept`() {
        let secret = SecretText("s3cret")
        var texts = ["\(secret)", String(reflecting: secret), "\(Holder(password: secret))", "\([secret])"]
        for value in [secret as Any, Holder(password: secret)] {
            var dumped = ""
            dump(value, to: &dumped)
            texts.append(dumped)
        }
        for text in texts { #expect(!text.contains("s3cret") && text.contains("(secret)"), "\(text)") }
        #expect(secret.text == "s3cret")
    }
}
