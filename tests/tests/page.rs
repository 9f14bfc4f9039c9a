//! The committed page in headless Chromium, served under a path as a static host does.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use tokscope_tests::browser::{Browser, PageFile, Scheme};
use tokscope_tests::checkout;
use tokscope_tests::program::Running;
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

/// The page, opened, with files dropped on it.
async fn page_with(files: &[PageFile]) -> (StaticServer, Browser) {
    let server = StaticServer::start(&checkout().join("dist"), "/some/where/").await.unwrap();
    let browser = Browser::start().await.unwrap();
    browser.open(&server.url()).await.unwrap();
    browser.wait_until("document.querySelector('[data-test=drop]') !== null", LIMIT).await.unwrap();
    browser.drop_files(files).await.unwrap();
    (server, browser)
}

fn seed() -> PageFile {
    PageFile::read(&checkout().join("shared/tests/fixtures/seed.json")).unwrap()
}

/// Texts of all elements that a selector finds.
async fn texts(browser: &Browser, selector: &str) -> Vec<String> {
    let script = format!("return [...document.querySelectorAll({selector:?})].map((e) => e.innerText.trim().replaceAll('\\u2009', ' '))");
    serde_json::from_value(browser.run(&script).await.unwrap()).unwrap()
}

/// Opens the first report of the library.
async fn open_first(browser: &Browser) {
    browser.wait_until("document.querySelector('[data-test=file] button') !== null", LIMIT).await.unwrap();
    browser.run("document.querySelector('[data-test=file] button').click()").await.unwrap();
    browser.wait_until("document.querySelector('[data-test=matrix]') !== null", LIMIT).await.unwrap();
}

async fn choose_metric(browser: &Browser, id: &str) {
    let script = format!(
        "const s = document.querySelector('[data-test=metric-select]'); s.value = {id:?}; s.dispatchEvent(new Event('change', {{ bubbles: true }}))"
    );
    browser.run(&script).await.unwrap();
    let shown = format!("document.querySelector('[data-test=matrix]')?.dataset.metric === {id:?}");
    browser.wait_until(&shown, LIMIT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[cfg_attr(not(feature = "browser"), ignore = "drives Chromium; tests/run.sh runs it")]
async fn the_seed_dropped_shows_its_numbers_and_the_prefix_caching_hint() {
    let (server, browser) = page_with(&[seed()]).await;
    browser.wait_until("document.querySelector('[data-test=matrix]') !== null", LIMIT).await.unwrap();
    choose_metric(&browser, "aggregate-tps").await;
    assert_eq!(texts(&browser, "[data-test=cell]").await, ["145.5", "147.2", "151.5"]);
    choose_metric(&browser, "steps-per-s").await;
    assert_eq!(texts(&browser, "[data-test=cell]").await, ["52.5", "51.1", "50.4"]);
    let places = browser
        .run("return [...document.querySelectorAll('[data-test=cell]')].map((e) => e.dataset.context + ' ' + e.dataset.concurrency)");
    assert_eq!(places.await.unwrap(), serde_json::json!(["0 1", "32768 1", "65536 1"]));
    assert!(texts(&browser, "[data-test=verdict-sentence]").await[0].starts_with("3 of 3 cells valid"));
    let hints = texts(&browser, "[data-test=hints]").await.join(" ");
    assert!(hints.contains("the first token took 10.8 s at 64k"), "{hints}");
    assert!(texts(&browser, "[data-test=model]").await[0].contains("GLM-5.3-Flash-EXL3-4bpw"));
    let chart = browser.run("return document.querySelectorAll('[data-test=chart] svg circle').length").await.unwrap();
    assert!(chart.as_u64().unwrap() >= 3, "{chart}");
    assert_eq!(browser.console_errors().await.unwrap(), [""; 0]);
    assert_eq!(server.requests().len(), 4, "a report is read where it is, and sent nowhere");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[cfg_attr(not(feature = "browser"), ignore = "drives Chromium; tests/run.sh runs it")]
async fn a_file_that_cannot_be_read_says_why_beside_those_that_can() {
    let fixtures = checkout().join("shared/tests/fixtures");
    let cut = PageFile::new("cut.json", std::fs::read(fixtures.join("seed.json")).unwrap()[..5000].to_vec());
    let files = [seed(), cut, PageFile::new("empty.json", ""), PageFile::read(&fixtures.join("other/aiperf.json")).unwrap(), seed()];
    let (_server, browser) = page_with(&files).await;
    browser.wait_until("document.querySelectorAll('[data-test=file-error]').length === 3", LIMIT).await.unwrap();
    let errors = texts(&browser, "[data-test=file-error]").await.join("\n");
    for part in ["the file ends too early", "the file is empty", "a report of AIPerf"] {
        assert!(errors.contains(part), "{errors}");
    }
    assert_eq!(browser.run("return document.querySelectorAll('[data-test=file]').length").await.unwrap(), 1, "the same file twice is one");
    assert_eq!(browser.console_errors().await.unwrap(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[cfg_attr(not(feature = "browser"), ignore = "drives Chromium; tests/run.sh runs it")]
async fn invalid_and_limited_numbers_never_stand_bare() {
    let fixtures = checkout().join("shared/tests/fixtures");
    let (_server, browser) = page_with(&[PageFile::read(&fixtures.join("v0.6.json")).unwrap()]).await;
    browser.wait_until("document.querySelector('[data-test=matrix]') !== null", LIMIT).await.unwrap();
    assert_eq!(texts(&browser, "[data-test=cell]").await, ["150.0", "✗", "✗"]);
    let rows = texts(&browser, "[data-test=cell-row]").await;
    assert!(rows.iter().any(|row| row.contains("invalid") && row.contains("ReadTimeout")), "{rows:?}");
    assert_eq!(browser.console_errors().await.unwrap(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[cfg_attr(not(feature = "browser"), ignore = "drives Chromium; tests/run.sh runs it")]
async fn names_in_a_file_are_text_and_never_markup() {
    let mut report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(checkout().join("shared/tests/fixtures/v0.6.json")).unwrap()).unwrap();
    let evil = "<img src=x onerror=\"window.evil=1\">\"'><script>window.evil=1</script>";
    report["metadata"]["model"] = evil.into();
    report["metadata"]["version"] = evil.into();
    report["results"][2]["failure_reason"] = evil.into();
    report["event_log"] = serde_json::json!([evil]);
    report["methodology"] = serde_json::json!({ "prefill": { "name": evil, "notes": evil } });
    report["prefill"] = serde_json::json!({ evil: { "ttft_seconds": 1.0, "method": evil } });
    let (_server, browser) = page_with(&[PageFile::new(format!("{evil}.json"), report.to_string()), PageFile::new(evil, "{")]).await;
    open_first(&browser).await;
    browser.run("for (const d of document.querySelectorAll('details')) d.open = true").await.unwrap();
    assert_eq!(browser.run("return document.querySelectorAll('img, body script:not([type])').length").await.unwrap(), 0);
    assert_eq!(browser.run("return window.evil ?? null").await.unwrap(), serde_json::Value::Null);
    assert!(texts(&browser, "[data-test=model]").await[0].contains("<img src=x"));
    assert_eq!(browser.console_errors().await.unwrap(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[cfg_attr(not(feature = "browser"), ignore = "drives Chromium; tests/run.sh runs it")]
async fn at_420_pixels_only_the_matrix_scrolls_sideways() {
    let fixtures = checkout().join("shared/tests/fixtures");
    let (_server, browser) = page_with(&[PageFile::read(&fixtures.join("v0.6.json")).unwrap(), seed()]).await;
    open_first(&browser).await;
    for scheme in [Scheme::Light, Scheme::Dark] {
        browser.set_view(420, 900, scheme).await.unwrap();
        let wide = browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth").await.unwrap();
        assert_eq!(wide, 0, "{scheme:?}");
        // Text on the heat scale keeps its contrast in both themes.
        let least = browser.run(CONTRAST).await.unwrap().as_f64().unwrap();
        assert!(least >= 4.5, "contrast {least} in {scheme:?}");
    }
}

/// The least contrast (WCAG 2) of a matrix cell's text on its background.
const CONTRAST: &str = r"
const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const rgb = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
const luminance = ([r, g, b]) => { const f = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] > 0) return c; } return [255, 255, 255, 255]; };
return Math.min(...[...document.querySelectorAll('[data-test=cell]')].map((e) => {
  const [a, b] = [luminance(rgb(getComputedStyle(e).color)), luminance(behind(e))].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
}));";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[cfg_attr(not(feature = "browser"), ignore = "drives Chromium; tests/run.sh runs it")]
async fn the_host_lists_its_reports_and_its_link_opens_one() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(checkout().join("shared/tests/fixtures/seed.json"), folder.path().join("the seed.json")).unwrap();
    std::fs::copy(checkout().join("shared/tests/fixtures/v0.6.json"), folder.path().join("other.json")).unwrap();
    let host = Running::start(folder.path(), &["serve", ".", "--port", "0"]);
    let browser = Browser::start().await.unwrap();
    let page = format!("http://127.0.0.1:{}/", host.port());
    browser.open(&page).await.unwrap();
    browser.wait_until("document.querySelectorAll('[data-test=hosted]').length === 2", LIMIT).await.unwrap();
    browser.open("about:blank").await.unwrap();
    browser.open(&format!("{page}#open=api/reports/the%20seed.json")).await.unwrap();
    browser.wait_until("document.querySelector('[data-test=matrix]') !== null", LIMIT).await.unwrap();
    assert!(texts(&browser, "[data-test=model]").await[0].contains("GLM-5.3-Flash-EXL3-4bpw"));
    // Another host's address is not asked.
    browser.open("about:blank").await.unwrap();
    browser.open(&format!("{page}#open=http://127.0.0.1:9/x.json")).await.unwrap();
    browser.wait_until("document.querySelector('[data-test=drop]') !== null", LIMIT).await.unwrap();
    assert!(browser.requests().await.unwrap().iter().all(|url| url.starts_with(&page)));
    assert_eq!(browser.console_errors().await.unwrap(), [""; 0]);
}
