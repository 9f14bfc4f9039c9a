//! Everything the browser does for the page: files, the host, the address, storage, the clipboard. No other
//! module talks to it except through the events that components listen to.

use crate::state::Arrived;
use crate::state::fragment::file_name;
use js_sys::Uint8Array;
use std::pin::Pin;
use wasm_bindgen::closure::Closure;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{Document, DragEvent, Element, Event, File, FileList, HtmlElement, HtmlInputElement, HtmlTextAreaElement, Window};

fn window() -> Option<Window> {
    web_sys::window()
}

fn document() -> Option<Document> {
    window()?.document()
}

/// Starts work that waits for the browser. Boxed, so that the machinery of waiting exists once.
pub fn spawn(work: impl Future<Output = ()> + 'static) {
    let work: Pin<Box<dyn Future<Output = ()>>> = Box::pin(work);
    wasm_bindgen_futures::spawn_local(work);
}

/// Listens to an event of the window as long as the page lives.
pub fn listen(name: &'static str, hear: impl Fn(&Event) + 'static) {
    let hear: Box<dyn Fn(Event)> = Box::new(move |event| hear(&event));
    let listener = Closure::<dyn Fn(Event)>::wrap(hear);
    if let Some(window) = window() {
        let _ = window.add_event_listener_with_callback(name, listener.into_js_value().unchecked_ref());
    }
}

/// Width of the window in pixels.
pub fn width() -> f64 {
    window().and_then(|window| window.inner_width().ok()?.as_f64()).unwrap_or(1200.0)
}

/// Tells now and from now on whether the system's colours are dark.
pub fn watch_dark(tell: impl Fn(bool) + 'static) {
    let Some(query) = window().and_then(|window| window.match_media("(prefers-color-scheme: dark)").ok()?) else { return };
    tell(query.matches());
    let again = query.clone();
    let listener = Closure::<dyn Fn()>::new(move || tell(again.matches()));
    // The page listens as long as it lives.
    let _ = query.add_event_listener_with_callback("change", listener.into_js_value().unchecked_ref());
}

/// Names the theme in the document, where the style sheet looks for it.
pub fn show_theme(name: &str) {
    if let Some(root) = document().and_then(|document| document.document_element()) {
        let _ = root.set_attribute("data-theme", name);
    }
}

/// The theme chosen in an earlier visit.
pub fn stored_theme() -> Option<String> {
    window()?.local_storage().ok()??.get_item("tokscope-theme").ok()?
}

/// Keeps the theme for the next visit, where the browser allows it.
pub fn store_theme(name: &str) {
    if let Some(storage) = window().and_then(|window| window.local_storage().ok()?) {
        let _ = storage.set_item("tokscope-theme", name);
    }
}

/// The address's fragment, with its `#`.
pub fn fragment() -> String {
    window().and_then(|window| window.location().hash().ok()).unwrap_or_default()
}

/// Replaces the address's fragment without a new entry in the history. Where the address can't be changed
/// (a file opened from disk in some browsers) nothing is lost but the link.
pub fn set_fragment(text: &str) {
    let Some(window) = window() else { return };
    let path = window.location().pathname().unwrap_or_default() + &window.location().search().unwrap_or_default();
    let address = if text.is_empty() { path } else { format!("{path}#{text}") };
    if let Ok(history) = window.history() {
        let _ = history.replace_state_with_url(&JsValue::NULL, "", Some(&address));
    }
}

/// The text of an element of the document: what was put into the page when it was made.
pub fn text_of(id: &str) -> Option<String> {
    document()?.get_element_by_id(id)?.text_content()
}

/// Where the host that serves the page lists its reports, if it says so in the document.
pub fn host_list() -> Option<String> {
    let meta = document()?.query_selector("meta[name=tokscope-host]").ok()??;
    meta.get_attribute("content").filter(|address| !address.is_empty())
}

/// Fetches from the host that the page came from.
///
/// # Errors
/// Says in words what went wrong and what to do.
pub async fn fetch(address: &str) -> Result<Vec<u8>, String> {
    let unreachable = || format!("{address} could not be fetched: is the host still running? Start it again, or drop the file here");
    let window = window().ok_or_else(unreachable)?;
    let here = window.location().href().map_err(|_| unreachable())?;
    let url = web_sys::Url::new_with_base(address, &here).map_err(|_| format!("{address} is no address"))?;
    if Ok(url.origin()) != window.location().origin() {
        return Err(format!("{address} lies on another host: open it from there, or drop the file here"));
    }
    let answer = JsFuture::from(window.fetch_with_str(&url.href())).await.map_err(|_| unreachable())?;
    let response: web_sys::Response = answer.dyn_into().map_err(|_| unreachable())?;
    if !response.ok() {
        return Err(format!("the host answered {} for {address}: the report isn't there any more", response.status()));
    }
    let buffer = JsFuture::from(response.array_buffer().map_err(|_| unreachable())?).await.map_err(|_| unreachable())?;
    Ok(Uint8Array::new(&buffer).to_vec())
}

/// A report of the host.
pub async fn fetch_report(address: String) -> Arrived {
    let bytes = fetch(&address).await;
    Arrived { name: file_name(&address), address: Some(address), bytes }
}

/// Whether what is dragged holds files.
pub fn holds_files(event: &Event) -> bool {
    event
        .dyn_ref::<DragEvent>()
        .and_then(DragEvent::data_transfer)
        .is_some_and(|data| data.types().includes(&JsValue::from_str("Files"), 0))
}

/// The files that were dropped.
pub fn dropped(event: &Event) -> Vec<File> {
    event.dyn_ref::<DragEvent>().and_then(DragEvent::data_transfer).and_then(|data| data.files()).map_or_else(Vec::new, |list| files(&list))
}

/// The files that were picked; the input is emptied, so that the same file can be picked again.
pub fn picked(event: &Event) -> Vec<File> {
    let Some(input) = event.target().and_then(|target| target.dyn_into::<HtmlInputElement>().ok()) else { return Vec::new() };
    let found = input.files().map_or_else(Vec::new, |list| files(&list));
    input.set_value("");
    found
}

fn files(list: &FileList) -> Vec<File> {
    (0..list.length()).filter_map(|i| list.get(i)).collect()
}

/// Reads a file of the reader's disk.
pub async fn read(file: File) -> Arrived {
    let bytes = JsFuture::from(file.array_buffer()).await.map(|buffer| Uint8Array::new(&buffer).to_vec());
    let reason = "it could not be read from disk: if it is a folder, drop the files in it; else check that it is still there";
    Arrived { name: file.name(), address: None, bytes: bytes.map_err(|_| reason.to_owned()) }
}

/// Puts text on the clipboard; false where the browser doesn't allow it.
pub async fn copy(text: String) -> bool {
    let Some(window) = window() else { return false };
    // Only pages from loopback or with TLS have a clipboard.
    let clipboard = window.navigator().clipboard();
    if !clipboard.is_undefined() && JsFuture::from(clipboard.write_text(&text)).await.is_ok() {
        return true;
    }
    copy_by_selection(&text).unwrap_or(false)
}

fn copy_by_selection(text: &str) -> Option<bool> {
    let document = document()?.dyn_into::<web_sys::HtmlDocument>().ok()?;
    let area: HtmlTextAreaElement = document.create_element("textarea").ok()?.dyn_into().ok()?;
    area.set_value(text);
    document.body()?.append_child(&area).ok()?;
    area.select();
    let done = document.exec_command("copy").unwrap_or(false);
    area.remove();
    Some(done)
}

/// Puts the keyboard's focus on an element and brings it into view.
pub fn focus(id: &str) {
    if let Some(element) = document().and_then(|document| document.get_element_by_id(id)?.dyn_into::<HtmlElement>().ok()) {
        let _ = element.focus();
    }
}

/// Presses a button or a file input.
pub fn click(id: &str) {
    if let Some(element) = document().and_then(|document| document.get_element_by_id(id)?.dyn_into::<HtmlElement>().ok()) {
        element.click();
    }
}

/// Whether keys typed now belong to a field.
pub fn typing(event: &Event) -> bool {
    let target = event.target().and_then(|target| target.dyn_into::<Element>().ok());
    target.is_some_and(|element| ["INPUT", "SELECT", "TEXTAREA"].contains(&element.tag_name().as_str()))
}

/// The value of an attribute of the element in which an event happened, or of the nearest one around it that has it.
pub fn attribute(event: &Event, name: &str) -> Option<String> {
    let target = event.target()?.dyn_into::<Element>().ok()?;
    target.closest(&format!("[{name}]")).ok()??.get_attribute(name)
}

/// Marks one element of a group as the one that is asked about, and reachable by the Tab key, in place of another.
pub fn mark(before: Option<&str>, now: Option<&str>) {
    let Some(document) = document() else { return };
    let change = |id: Option<&str>, class: &str, tab: &str| {
        if let Some(element) = id.and_then(|id| document.get_element_by_id(id)) {
            element.set_class_name(class);
            let _ = element.set_attribute("tabindex", tab);
        }
    };
    change(before, "", "-1");
    change(now, "asked", "0");
}

/// Where a pointer is inside the element with that attribute, in pixels; `None` outside of it.
pub fn place_inside(event: &Event, attribute: &str) -> Option<(f64, f64)> {
    let event = event.dyn_ref::<web_sys::MouseEvent>()?;
    let target = event.target()?.dyn_into::<Element>().ok()?;
    let edges = target.closest(&format!("[{attribute}]")).ok()??.get_bounding_client_rect();
    Some((f64::from(event.client_x()) - edges.left(), f64::from(event.client_y()) - edges.top()))
}

/// The value of a field, by the event that it changed.
pub fn value(event: &Event) -> String {
    let target = event.target();
    let value = target.and_then(|target| js_sys::Reflect::get(&target, &JsValue::from_str("value")).ok()?.as_string());
    value.unwrap_or_default()
}

/// Sets what a chooser shows.
pub fn set_value(id: &str, value: &str) {
    if let Some(element) = document().and_then(|document| document.get_element_by_id(id)) {
        let _ = js_sys::Reflect::set(&element, &JsValue::from_str("value"), &JsValue::from_str(value));
    }
}

/// The id of the element in which an event happened.
pub fn id(event: &Event) -> String {
    event.target().and_then(|target| target.dyn_into::<Element>().ok()).map(|element| element.id()).unwrap_or_default()
}

/// The key of a keyboard event, but not of one with Ctrl, Alt or Meta, which are the browser's.
pub fn key(event: &Event) -> Option<String> {
    let event = event.dyn_ref::<web_sys::KeyboardEvent>()?;
    let foreign = event.ctrl_key() || event.meta_key() || event.alt_key();
    (!foreign).then(|| event.key())
}
