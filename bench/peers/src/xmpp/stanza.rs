//! XML as it comes from a socket, cut into stanzas. Enough for what XMPP allows on a stream: no comments, no
//! processing instructions besides the first line, and a `>` or `<` only where it must be or inside quotes.

use std::ops::Range;

/// The stream is over, or what came is no XMPP.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended;

#[derive(Debug, Default)]
pub struct Splitter {
    bytes: Vec<u8>,
    /// Where the piece begins that is not complete yet.
    start: usize,
    /// How far it was looked at.
    at: usize,
    /// Tags that are open.
    depth: usize,
    /// Where the tag begins that was not closed yet, and the quote it is inside of.
    tag: Option<(usize, Option<u8>)>,
}

impl Splitter {
    /// Where to put what comes next from the socket.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.at -= self.start;
            self.tag = self.tag.map(|(begin, quote)| (begin - self.start, quote));
            self.start = 0;
        }
        &mut self.bytes
    }

    /// A new stream begins on the same socket, as it does after a log-in.
    pub fn restart(&mut self) {
        *self = Splitter { bytes: std::mem::take(&mut self.bytes), ..Splitter::default() };
        self.bytes.clear();
    }

    /// The next child of the stream, if all of it has come.
    pub fn next(&mut self) -> Option<Result<&str, Ended>> {
        match self.find()? {
            Ok(range) => Some(std::str::from_utf8(&self.bytes[range]).map_err(|_| Ended)),
            Err(ended) => Some(Err(ended)),
        }
    }

    fn find(&mut self) -> Option<Result<Range<usize>, Ended>> {
        while let Some(&byte) = self.bytes.get(self.at) {
            let at = self.at;
            self.at += 1;
            match &mut self.tag {
                None if byte == b'<' => {
                    if self.depth <= 1 {
                        self.start = at;
                    }
                    self.tag = Some((at, None));
                }
                None => {}
                Some((_, quote @ Some(_))) => *quote = quote.filter(|open| *open != byte),
                Some((_, quote)) if matches!(byte, b'\'' | b'"') => *quote = Some(byte),
                Some((begin, None)) if byte == b'>' => {
                    let begin = *begin;
                    self.tag = None;
                    if let Some(found) = self.end_of_tag(begin) {
                        return Some(found);
                    }
                }
                Some(_) => {}
            }
        }
        if self.depth <= 1 && self.tag.is_none() {
            // White space between stanzas, which keeps connections alive.
            self.start = self.at;
        }
        None
    }

    /// A tag reaches from `begin` to where we are: what does it complete?
    fn end_of_tag(&mut self, begin: usize) -> Option<Result<Range<usize>, Ended>> {
        let tag = &self.bytes[begin..self.at];
        let (is_end, is_alone, is_header) =
            (tag.starts_with(b"</"), tag.ends_with(b"/>"), tag.starts_with(b"<?"));
        match (is_header, is_end, is_alone) {
            (true, ..) => {}
            (_, true, _) => self.depth = self.depth.saturating_sub(1),
            (_, _, true) => {}
            _ => self.depth += 1,
        }
        let piece = self.start..self.at;
        if self.depth <= 1 {
            self.start = self.at;
        }
        match (is_header, is_end, self.depth) {
            (true, ..) => None,
            (_, _, 0) => Some(Err(Ended)),
            // The stream itself begins.
            (_, false, 1) if !is_alone => None,
            (_, _, 1) => Some(Ok(piece)),
            _ => None,
        }
    }
}

/// The value of an attribute of the first tag in `text`.
pub fn attribute<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = text.split_once('<')?.1;
    rest = &rest[rest.find([' ', '>', '/'])?..];
    loop {
        rest = rest.trim_start();
        if rest.starts_with(['>', '/']) {
            return None;
        }
        let (key, after) = rest.split_once('=')?;
        let quote = after.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let (value, after) = after[1..].split_once(quote)?;
        if key.trim_end() == name {
            return Some(value);
        }
        rest = after;
    }
}

/// What stands between `<name …>` and `</name>`, for elements of plain text.
pub fn text_of<'a>(stanza: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = element(stanza, name)?.split_once('>')?;
    after.split_once("</").map(|(text, _)| text)
}

/// The stanza from the first tag of this name on.
pub fn element<'a>(stanza: &'a str, name: &str) -> Option<&'a str> {
    let mut from = 0;
    while let Some(found) = stanza[from..].find('<') {
        let at = from + found;
        let rest = &stanza[at + 1..];
        if rest.strip_prefix(name).is_some_and(|after| after.starts_with([' ', '>', '/'])) {
            return Some(&stanza[at..]);
        }
        from = at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "<?xml version='1.0'?><stream:stream id='1' from='localhost'>\
        <stream:features><bind xmlns='b'/></stream:features> \n\
        <iq type='result' id='b'/><message from=\"a/>b\" id='2'><body>x &gt; y</body><r xmlns='urn'/></message>\
        <presence from='ä@localhost'></presence></stream:stream>";

    fn pieces(reads: &[&[u8]]) -> Vec<String> {
        let mut splitter = Splitter::default();
        let mut found = Vec::new();
        for read in reads {
            splitter.buffer().extend_from_slice(read);
            while let Some(piece) = splitter.next() {
                found.push(piece.unwrap_or("ended").to_owned());
            }
        }
        found
    }

    #[test]
    fn a_stream_is_cut_the_same_wherever_the_reads_end() {
        let whole = pieces(&[STREAM.as_bytes()]);
        assert_eq!(
            whole,
            [
                "<stream:features><bind xmlns='b'/></stream:features>",
                "<iq type='result' id='b'/>",
                "<message from=\"a/>b\" id='2'><body>x &gt; y</body><r xmlns='urn'/></message>",
                "<presence from='ä@localhost'></presence>",
                "ended",
            ]
        );
        for cut in 0..=STREAM.len() {
            let (head, tail) = STREAM.as_bytes().split_at(cut);
            assert_eq!(pieces(&[head, tail]), whole, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = STREAM.as_bytes().chunks(1).collect();
        assert_eq!(pieces(&bytes), whole);
    }

    #[test]
    fn a_stream_begins_anew_on_the_same_socket() {
        let mut splitter = Splitter::default();
        splitter.buffer().extend_from_slice(b"<stream:stream><success xmlns='sasl'/>");
        assert_eq!(splitter.next(), Some(Ok("<success xmlns='sasl'/>")));
        assert_eq!(splitter.next(), None);
        splitter.restart();
        splitter.buffer().extend_from_slice(b"<?xml version='1.0'?><stream:stream><iq/>");
        assert_eq!(splitter.next(), Some(Ok("<iq/>")));
    }

    #[test]
    fn white_space_takes_no_room() {
        let mut splitter = Splitter::default();
        splitter.buffer().extend_from_slice(b"<stream:stream>");
        for _ in 0..1000 {
            splitter.buffer().push(b' ');
            assert_eq!(splitter.next(), None);
        }
        assert!(splitter.buffer().is_empty());
    }

    #[test]
    fn attributes_and_texts_are_found() {
        let stanza = "<message xml:lang='en' to=\"b@l\" id='7' from='a@l/x'><body>5 17 xx</body>\
                      <received id='3' xmlns='urn:xmpp:receipts'/></message>";
        assert_eq!(attribute(stanza, "id"), Some("7"));
        assert_eq!(attribute(stanza, "to"), Some("b@l"));
        assert_eq!(attribute(stanza, "type"), None);
        assert_eq!(text_of(stanza, "body"), Some("5 17 xx"));
        assert_eq!(attribute(element(stanza, "received").unwrap(), "id"), Some("3"));
        assert_eq!(element(stanza, "rec"), None);
        assert_eq!(attribute("<iq/>", "id"), None);
    }
}
