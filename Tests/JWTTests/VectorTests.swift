import Testing

@testable import JWT

/// The examples of RFC 7515, appendix A, and RFC 8037, appendix A.
struct VectorTests {
    private static let claims =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"

    struct Vector: Sendable, CustomTestStringConvertible {
        let name: String
        let key: String
        let signed: String
        let signature: String

        var testDescription: String { name }
    }

    static let vectors = [
        Vector(
            name: "RFC 7515, A.2: RS256",
            key:
                #"{"kty":"RSA","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPM"#
                + "EzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5r"
                + "exMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWN"
                + #"moudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ","e":"AQAB"}"#,
            signed: "eyJhbGciOiJSUzI1NiJ9." + claims,
            signature:
                "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujG"
                + "bds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0Gar"
                + "ZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs"
                + "98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"
        ),
        Vector(
            name: "RFC 7515, A.3: ES256",
            key: #"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","#
                + #""y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#,
            signed: "eyJhbGciOiJFUzI1NiJ9." + claims,
            signature: "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
        ),
        Vector(
            name: "RFC 8037, A.4 and A.5: EdDSA",
            key: #"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#,
            signed: "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
            signature: "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"
        ),
    ]

    @Test(arguments: vectors)
    func `the signature of an example is verified`(_ vector: Vector) throws {
        let key = try #require(try Issuer.keys(Issuer.keySet([vector.key])).onlyKey)
        let signature = try #require(decoded(vector.signature))
        let signed = Array(vector.signed.utf8)
        let isGood = key.verify(signature.span, of: signed.span)
        #expect(isGood)
        for position in [0, signature.count / 2, signature.count - 1] {
            var changed = signature
            changed[position] ^= 1
            let isGood = key.verify(changed.span, of: signed.span)
            #expect(!isGood)
        }
        let isGoodForOther = key.verify(signature.span, of: (signed + [0x41]).span)
        #expect(!isGoodForOther)
    }
}
