/// Public keys and tokens that their private keys, which nobody has any more, have signed.
enum SignedTokens {
    static let keySet = #"""
        {"keys":[{"kty":"EC","crv":"P-256","kid":"ec","alg":"ES256","use":"sig",
        "x":"SWxyIZmfDNtnC7qJeyuDyBXLg-Vtfue6TTqmvp8qUOM",
        "y":"ogtphlAjnvBI_BnWAg0zfXCMrvqWaAQQzsLCGGnL5Go"},
        {"kty":"OKP","crv":"Ed25519","kid":"ed",
        "x":"HmzJhi1p9MZY-NTXKrEWwM-eOTR6W64UQ9eOCbIt8vY"}]}
        """#

    static let all = [
        "eyJhbGciOiJFUzI1NiIsInR5cCI6ImF0K2p3dCIsImtpZCI6ImVjIn0.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUuY29t"
            + "IiwiYXVkIjpbImFwaSIsImIiXSwic3ViIjoiYWxpY2UiLCJleHAiOjE4MDAwMDAzMDAsImlhdCI6MTc5OTk5OTk5MH0.a72j"
            + "YkiSXdv22JpBlBGT57B1TxWVSDyFdPL-cV0U2qpbVHOCp0VWS68QNxeHbCfAPkZZimJWEBpuiqQQThC5XQ",
        "eyJhbGciOiJFZERTQSIsImtpZCI6ImVkIn0.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUuY29tIiwiYXVkIjpbImFwaSIs"
            + "ImIiXSwic3ViIjoiYWxpY2UiLCJleHAiOjE4MDAwMDAzMDAsImlhdCI6MTc5OTk5OTk5MH0.QnixeyrUqF93wvxlpWO-Qnxw"
            + "hedHMGHbyByY3Yof1BX5QwAwdFoG-MZeJpVX0rtGhkLoZa4V99YownVv3a-NBw",
    ]
}
