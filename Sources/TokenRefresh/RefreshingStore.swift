#if TokenRefresh
package import TokenStore

/// A store that refreshes tokens when they are read.
///
/// Any thread.
package final class RefreshingStore: TokenStore {
    private let inner: any TokenStore
    package let refresher: TokenRefresher
    private let hidesRefreshTokens: Bool

    /// - Parameters:
    ///   - inner: Where the tokens are.
    ///   - provider: Who refreshes them.
    ///   - patience: How long a read waits for a token that has expired.
    ///   - hidesRefreshTokens: Whether nobody is given a refresh token.
    ///   - report: Called when the provider begins to fail, and when it works again.
    package init(
        _ inner: any TokenStore, _ provider: RefreshProvider, patience: Duration, hidesRefreshTokens: Bool = false,
        report: @escaping @Sendable (StoreEvent) -> Void
    ) {
        self.inner = inner
        self.hidesRefreshTokens = hidesRefreshTokens
        // Not the administrator's, which commands may keep busy.
        let handle = WaitingHandle { (deliver) throws(StoreError) in try inner.makeHandle(deliver: deliver) }
        refresher = TokenRefresher(provider, patience: patience, handle: handle, report: report)
    }

    package func makeHandle(deliver: @escaping WaitingHandle.Deliver) throws(StoreError) -> any StoreHandle {
        RefreshingHandle(
            try inner.makeHandle(deliver: deliver), refresher, hidesRefreshTokens: hidesRefreshTokens, deliver: deliver)
    }

    package var metrics: StoreMetrics {
        var metrics = inner.metrics
        metrics.refresh = refresher.metrics
        return metrics
    }

    package func finishWrites() {
        // A provider's answer would be lost if it could no longer be stored.
        refresher.finish()
        inner.finishWrites()
    }

    // MARK: - Passed on

    package var software: StoreSoftware { inner.software }
    package var summary: String { inner.summary }
    package var fault: StoreError? { inner.fault }
    package var administrator: any StoreAdministrator { inner.administrator }
    package var seesAllWrites: Bool { inner.seesAllWrites }
    package func preload() { inner.preload() }
    package func report(writesTo observer: any WriteObserver) { inner.report(writesTo: observer) }
    package func change(_ retention: Retention) { inner.change(retention) }
    package func close() { inner.close() }
}
#endif
