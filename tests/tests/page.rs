//! The committed page in headless Chromium, served under a path as a static host does.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use tokscope_tests::browser::Browser;
use tokscope_tests::checkout;
use tokscope_tests::static_server::StaticServer;

const LIMIT: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[cfg_attr(not(feature = "browser"), ignore = "drives Chromium; tests/run.sh runs it")]
async fn the_page_loads_without_an_error_and_asks_for_its_own_files_alone() {
    let server = StaticServer::start(&checkout().join("dist"), "/some/where/").await.unwrap();
    let browser = Browser::start().await.unwrap();
    browser.open(&server.url()).await.unwrap();
    browser.wait_until("document.body.innerText.trim().length > 0", LIMIT).await.unwrap();

    assert_eq!(browser.console_errors().await.unwrap(), [""; 0]);
    let asked = browser.requests().await.unwrap();
    assert!(!asked.is_empty());
    for url in &asked {
        assert!(url.starts_with(&server.url()), "{url} is not the page's own");
    }
    // The host saw the same: index.html, and each of the other files once.
    let mut seen = server.requests();
    seen.sort();
    let count = seen.len();
    seen.dedup();
    assert_eq!(seen.len(), count, "a file was asked for twice: {seen:?}");
    assert_eq!(count, 4, "{seen:?}");
}
