//! Puts the page into the document.

use tokscope_viewer::view::App;

fn main() {
    console_error_panic_hook::set_once();
    leptos::mount::mount_to_body(App);
}
