//! The report of `ream bench all` in a real browser: on a phone, on a screen, on paper; without a word in the console and
//! without a request to anywhere.

use ream_tests::{Browser, Scratch, program, ream_binary};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Opens pages at several widths and writes down what is wrong with each.
const HARNESS: &str = r#"<!DOCTYPE html><meta charset="utf-8"><body><pre id="findings"></pre><script>
const findings = {};
function look(frame, name) {
  const wrong = [], page = frame.contentDocument, width = frame.clientWidth;
  const root = page.documentElement;
  if (root.scrollWidth > root.clientWidth) wrong.push(`scrolls sideways: ${root.scrollWidth} > ${root.clientWidth}`);
  for (const element of page.body.querySelectorAll('*')) {
    const right = element.getBoundingClientRect().right;
    if (right > width + 0.5) wrong.push(`<${element.tagName}> ${element.className.baseVal ?? element.className} reaches ${right}`);
  }
  const pictures = [...page.querySelectorAll('svg')];
  for (const picture of pictures) {
    const title = picture.querySelector('title')?.textContent ?? '', text = picture.querySelector('desc')?.textContent ?? '';
    if (picture.getAttribute('role') !== 'img' || title.length < 5 || text.length < 5 || !picture.getAttribute('aria-label'))
      wrong.push(`a picture without words: ${title}`);
    const box = picture.viewBox.baseVal;
    for (const part of picture.querySelectorAll('text,path,circle,rect')) {
      const own = part.getBBox();
      if (own.x < -0.5 || own.y < -0.5 || own.x + own.width > box.width + 0.5 || own.y + own.height > box.height + 0.5)
        wrong.push(`${title}: ${part.tagName} '${part.textContent}' lies outside: ${own.x} ${own.y} ${own.width} ${own.height}`);
    }
    const small = [...picture.querySelectorAll('text')].map(t => t.getBoundingClientRect().height);
    if (small.some(height => height < 9)) wrong.push(`${title}: letters of ${Math.min(...small)} pixels`);
  }
  for (const image of page.querySelectorAll('img')) wrong.push(`an image: ${image.src}`);
  for (const request of frame.contentWindow.performance.getEntriesByType('resource'))
    if (!request.name.startsWith('data:')) wrong.push(`asks for ${request.name}`);
  findings[name] = {wrong, pictures: pictures.length, tables: page.querySelectorAll('table').length,
    colour: frame.contentWindow.getComputedStyle(page.body).color, height: root.scrollHeight};
}
window.onload = () => {
  for (const frame of document.querySelectorAll('iframe')) look(frame, frame.title);
  document.getElementById('findings').textContent = JSON.stringify(findings);
};
</script>FRAMES</body>"#;

/// What the browser finds at each width, and what it says in its console.
fn looked_at(browser: &Browser, scratch: &Scratch, frames: &[(&str, u32, &Path)]) -> (Value, String) {
    let frame = |(name, width, page): &(&str, u32, &Path)| {
        format!(
            "<iframe title=\"{name}\" src=\"file://{}\" style=\"border:0;width:{width}px;height:900px\"></iframe>",
            page.display()
        )
    };
    let harness = scratch.file("harness.html");
    fs::write(&harness, HARNESS.replace("FRAMES", &frames.iter().map(frame).collect::<String>())).expect("the harness");
    let words = ["--allow-file-access-from-files", "--dump-dom", "--virtual-time-budget=20000"].map(str::to_owned);
    let (dom, console) = browser.open(&format!("file://{}", harness.display()), (1400, 1000), &words);
    let start = dom.find("<pre id=\"findings\">").map_or(0, |at| at + "<pre id=\"findings\">".len());
    let text = dom[start..]
        .split("</pre>")
        .next()
        .unwrap_or_default()
        .replace("&gt;", ">")
        .replace("&lt;", "<")
        .replace("&amp;", "&");
    let found = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}\n{console}"));
    (found, console.lines().filter(|line| line.contains("CONSOLE")).collect::<Vec<_>>().join("\n"))
}

/// The page that `ream bench report` makes of the example.
fn page(scratch: &Scratch) -> std::path::PathBuf {
    let out = scratch.directory("page");
    let output = Command::new(ream_binary())
        .args(["bench", "report"])
        .arg(program("bench/example.json"))
        .arg(&out)
        .output()
        .expect("running ream bench report");
    assert!(output.status.success(), "{output:?}");
    out.join("report.html")
}

#[test]
fn the_page_fits_phones_screens_and_paper() {
    let Some(browser) = Browser::find() else { return };
    let scratch = Scratch::new("bench-page");
    let page = page(&scratch);
    // What applies to paper, as wide as A4 within its margins.
    let text = fs::read_to_string(&page).expect("the page");
    let paper = scratch.file("paper.html");
    fs::write(&paper, text.replace("@media print{", "@media all{").replace("@page{margin:14mm}", "")).expect("a page");
    let frames =
        [("phone", 360, page.as_path()), ("tablet", 800, &page), ("screen", 1280, &page), ("paper", 688, &paper)];
    let (found, console) = looked_at(&browser, &scratch, &frames);
    assert_eq!(console, "", "the console is silent");
    for (name, ..) in frames {
        let one = &found[name];
        assert_eq!(one["wrong"].as_array().map(Vec::len), Some(0), "{name}: {one:#}");
        assert!(one["pictures"].as_u64() >= Some(4) && one["tables"].as_u64() >= Some(2), "{name}: {one:#}");
        assert_eq!(one["colour"], "rgb(26, 26, 26)", "dark letters");
    }
    // A phone shows less in a row, so the page is longer.
    assert!(found["phone"]["height"].as_u64() > found["screen"]["height"].as_u64(), "{found:#}");
}

#[test]
fn the_page_is_printed() {
    let Some(browser) = Browser::find() else { return };
    let scratch = Scratch::new("bench-print");
    let (page, paper) = (page(&scratch), scratch.file("report.pdf"));
    let words = [format!("--print-to-pdf={}", paper.display()), "--no-pdf-header-footer".into()];
    browser.open(&format!("file://{}", page.display()), (1000, 1000), &words);
    let bytes = fs::read(&paper).expect("the printed page");
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.starts_with("%PDF-") && text.matches("/Type /Page\n").count() >= 2, "{} bytes", bytes.len());
}

/// Whoever looks sees what is wrong.
#[test]
fn a_bad_page_is_found_out() {
    let Some(browser) = Browser::find() else { return };
    let scratch = Scratch::new("bench-bad-page");
    let bad = scratch.file("bad.html");
    let wide = "<div style=\"width:500px\">wide</div><svg width=\"9\" height=\"9\" viewBox=\"0 0 9 9\"><text x=\"50\">t</text></svg>\
                <script>console.error('a fault')</script><img src=\"http://127.0.0.1:9/x.png\">";
    fs::write(&bad, format!("<!DOCTYPE html><body>{wide}</body>")).expect("a page");
    let (found, console) = looked_at(&browser, &scratch, &[("phone", 360, &bad)]);
    let wrong = found["phone"]["wrong"].to_string();
    for words in ["scrolls sideways", "without words", "lies outside", "an image", "asks for http"] {
        assert!(wrong.contains(words), "{words}: {found:#}");
    }
    assert!(console.contains("a fault"), "{console}");
}
