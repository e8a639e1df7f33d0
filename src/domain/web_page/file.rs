//! Files beside a page: policies and schemas that it names by URL.

use url::Url;

/// Longest file, in bytes.
pub const PAGE_FILE_BYTES_MAX: usize = 64 * 1024;
/// Most files of one page.
pub const PAGE_FILES_MAX: usize = 16;

/// Answer to the request for a file that a page names.
#[derive(Clone, Copy, Debug)]
pub struct PageFile<'a> {
    /// URL, as [`super::reading::PageReading`] gave it.
    pub url: &'a Url,
    /// Content; `None` if the file could not be fetched.
    pub body: Option<&'a [u8]>,
}

/// State of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileState<'a> {
    /// Content.
    Text(&'a str),
    /// The file is still to be fetched, and was added to those that are wanted.
    Wanted,
    /// The file could not be fetched, is too long, or is no text.
    Failed,
    /// The URL is none, or of another origin than the page; `data:` URLs are of another origin.
    Refused,
}

/// Finds a file by the URL that a page wrote.
pub(super) fn find<'a>(
    written: &str,
    page: &Url,
    files: &[PageFile<'a>],
    wanted: &mut Vec<Url>,
) -> FileState<'a> {
    let Ok(mut url) = page.join(written.trim()) else { return FileState::Refused };
    url.set_fragment(None);
    if url.origin() != page.origin() || !url.origin().is_tuple() {
        return FileState::Refused;
    }
    if let Some(file) = files.iter().find(|file| *file.url == url) {
        let body = file.body.filter(|body| body.len() <= PAGE_FILE_BYTES_MAX);
        return body
            .and_then(|body| std::str::from_utf8(body).ok())
            .map_or(FileState::Failed, FileState::Text);
    }
    if wanted.contains(&url) {
        return FileState::Wanted;
    }
    if wanted.len() + files.len() >= PAGE_FILES_MAX {
        return FileState::Failed;
    }
    wanted.push(url);
    FileState::Wanted
}
