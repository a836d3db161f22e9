//! Drawing: from the model to a frame, and nothing else.

use bluetick_client::Tick;
use bluetick_protocol::Seq;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Position, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Block, BorderType, Paragraph},
};

use super::{
    clock,
    model::{ConnectionStatus, Model, Older},
    text::{width, wrap},
};

const MINE: Color = Color::Indexed(23);
const THEIRS: Color = Color::Indexed(237);
const BAR: Color = Color::Indexed(235);
const TEXT: Color = Color::Indexed(255);
const FAINT: Color = Color::Indexed(248);
const BLUE: Color = Color::Indexed(45);
const GREEN: Color = Color::Indexed(78);
const WARNING: Color = Color::Indexed(179);
const ALARM: Color = Color::Indexed(203);
/// What is wrong with the connection, at most.
const TROUBLE_LINES_MAX: usize = 3;

/// What a drawing showed: the model learns from it what was read and how far it can scroll.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DrawnView {
    /// The peer's newest message on the screen.
    pub(super) newest: Option<Seq>,
    /// Lines of the conversation on one screen.
    pub(super) page: usize,
    /// The scroll that was possible.
    pub(super) scroll: usize,
    /// The oldest loaded message is in sight or nearly so.
    pub(super) near_top: bool,
}

pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) -> DrawnView {
    let mut banner: Vec<Line<'_>> = banner(model).into_iter().map(Line::from).collect();
    if let Some(trouble) = model.trouble.as_deref().filter(|_| !banner.is_empty()) {
        let lines = wrap(trouble, frame.area().width.into());
        banner.extend(lines.into_iter().take(TROUBLE_LINES_MAX).map(Line::from));
    }
    let rows = [
        Constraint::Length(1),
        Constraint::Length(banner.len() as u16),
        Constraint::Min(1),
        Constraint::Length(1),
        Constraint::Length(3),
    ];
    let [top, below, middle, foot, bottom] = Layout::vertical(rows).areas(frame.area());
    header(frame, model, top);
    if !banner.is_empty() {
        let style = Style::new().fg(Color::Indexed(16)).bg(WARNING);
        frame.render_widget(Paragraph::new(banner).centered().style(style), below);
    }
    let shown = conversation(frame, model, middle);
    frame.render_widget(Paragraph::new(footer(model, &shown)), foot);
    input(frame, model, bottom);
    shown
}

fn header(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let faint = Style::new().fg(FAINT);
    let online = model.presence.as_ref().is_some_and(|presence| presence.online);
    let dot = Span::styled(" ● ", Style::new().fg(if online { GREEN } else { FAINT }));
    let name =
        Span::styled(model.peer_title().to_owned(), Style::new().fg(TEXT).add_modifier(Modifier::BOLD));
    let state = if model.is_typing() {
        Span::styled("  typing…", Style::new().fg(GREEN).add_modifier(Modifier::ITALIC))
    } else {
        Span::styled(presence(model), faint)
    };
    let line = Line::from(vec![dot, name, state]);
    let me = Line::styled(format!("{} ", model.me), faint).right_aligned();
    frame.render_widget(Paragraph::new(me).style(Style::new().bg(BAR)), area);
    let left = Rect { width: area.width.min(line.width() as u16), ..area };
    frame.render_widget(Paragraph::new(line).style(Style::new().bg(BAR)), left);
}

fn presence(model: &Model) -> String {
    match &model.presence {
        Some(presence) if presence.online => "  online".into(),
        Some(presence) => match presence.last_seen {
            Some(ms) => format!("  last seen {}", clock::moment(ms, model.now_ms)),
            None => String::new(),
        },
        None => String::new(),
    }
}

fn banner(model: &Model) -> Option<String> {
    let waiting = match model.waiting() {
        0 => String::new(),
        1 => " · 1 message waits".into(),
        n => format!(" · {n} messages wait"),
    };
    match model.link {
        ConnectionStatus::Online => None,
        ConnectionStatus::Connecting => Some(format!("connecting…{waiting}")),
        ConnectionStatus::Offline { retry_at: None } => {
            Some(format!("offline on purpose · Ctrl-O to connect{waiting}"))
        }
        ConnectionStatus::Offline { retry_at: Some(at) } => {
            match at.saturating_sub(model.now_ms).div_ceil(1000) {
                0 => Some(format!("offline · connecting…{waiting}")),
                seconds => Some(format!("offline · next try in {seconds} s{waiting}")),
            }
        }
    }
}

fn footer(model: &Model, shown: &DrawnView) -> Line<'static> {
    if let Some(notice) = model.notice() {
        return Line::styled(format!(" {notice}"), Style::new().fg(WARNING));
    }
    if shown.scroll > 0 {
        let new = match model.unseen {
            0 => String::new(),
            1 => "1 new message · ".into(),
            n => format!("{n} new messages · "),
        };
        return Line::styled(format!(" ↓ {new}PgDn or End to return"), Style::new().fg(BLUE));
    }
    let hints = " Enter send · PgUp older · Ctrl-O offline · Ctrl-C quit · times in UTC";
    Line::styled(hints, Style::new().fg(Color::Indexed(242)))
}

fn input(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let block = Block::bordered().border_type(BorderType::Rounded).border_style(Style::new().fg(FAINT));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    if inner.is_empty() {
        return;
    }
    let (text, column) = model.input.window(usize::from(inner.width));
    let line = match model.input.is_empty() {
        true => Line::styled(format!("message {}", model.peer_title()), Style::new().fg(Color::Indexed(242))),
        false => Line::raw(text),
    };
    frame.render_widget(Paragraph::new(line), inner);
    frame.set_cursor_position(Position::new(inner.x.saturating_add(column as u16), inner.y));
}

// ---- the conversation ----

/// One line of the conversation; the last line of a peer's message carries its seq.
struct ScreenLine {
    line: Line<'static>,
    seq: Option<Seq>,
}

impl From<Line<'static>> for ScreenLine {
    fn from(line: Line<'static>) -> Self {
        ScreenLine { line, seq: None }
    }
}

/// A message on its way to the screen, sent or not.
struct Bubble<'a> {
    seq: Option<Seq>,
    mine: bool,
    body: &'a str,
    ts: u64,
    refused: Option<&'a str>,
}

fn conversation(frame: &mut Frame<'_>, model: &Model, area: Rect) -> DrawnView {
    let height = usize::from(area.height);
    // Laid out from the newest upwards, and no further than a screen beyond what is shown.
    let enough = model.scroll.saturating_add(2 * height);
    let (rows, near_top) = rows_upwards(model, usize::from(area.width), enough);
    let scroll = model.scroll.min(rows.len().saturating_sub(height));
    let visible = &rows[scroll..rows.len().min(scroll + height)];
    let newest = visible.iter().find_map(|row| row.seq);
    let mut lines: Vec<Line<'_>> = visible.iter().rev().map(|row| row.line.clone()).collect();
    // A short conversation stands at the bottom, where the next message will appear.
    for _ in lines.len()..height {
        lines.insert(0, Line::default());
    }
    frame.render_widget(Paragraph::new(lines), area);
    DrawnView { newest, page: height, scroll, near_top }
}

/// The lowest line first; true if the oldest loaded message is among them.
fn rows_upwards(model: &Model, columns: usize, enough: usize) -> (Vec<ScreenLine>, bool) {
    let mut rows: Vec<ScreenLine> = Vec::new();
    let mut newest_first = newest_first(model).peekable();
    while let Some(bubble) = newest_first.next() {
        if rows.len() > enough {
            return (rows, false);
        }
        let mut drawn = draw_bubble(model, &bubble, columns);
        rows.extend(drawn.drain(..).rev());
        let older = newest_first.peek();
        if older.is_none_or(|older| clock::day(older.ts) != clock::day(bubble.ts)) {
            let date = format!("── {} ──", clock::date(bubble.ts, model.now_ms));
            rows.push(Line::styled(date, Style::new().fg(FAINT)).centered().into());
        } else if older.is_some_and(|older| older.mine != bubble.mine) {
            rows.push(Line::default().into());
        }
    }
    let top = match model.older {
        Older::Unknown => "",
        Older::Loading => "loading older messages…",
        Older::Before(_) => "PgUp for older messages",
        Older::Nothing if model.messages.is_empty() => "no messages yet: write the first",
        Older::Nothing => "the conversation begins here",
    };
    rows.push(Line::styled(top, Style::new().fg(Color::Indexed(242))).centered().into());
    (rows, true)
}

fn newest_first(model: &Model) -> impl Iterator<Item = Bubble<'_>> {
    let unsent = model.unsent.iter().rev().map(|unsent| Bubble {
        seq: None,
        mine: true,
        body: &unsent.body,
        ts: unsent.ts,
        refused: unsent.refused.as_deref(),
    });
    let sent = model.messages.iter().rev().map(|(&seq, shown)| Bubble {
        seq: Some(seq),
        mine: shown.mine,
        body: &shown.body,
        ts: shown.ts,
        refused: None,
    });
    unsent.chain(sent)
}

fn draw_bubble(model: &Model, bubble: &Bubble<'_>, columns: usize) -> Vec<ScreenLine> {
    let back = if bubble.mine { MINE } else { THEIRS };
    let room = (columns * 3 / 4).saturating_sub(2).max(8);
    let mut lines = wrap(bubble.body, room);
    let stamp = stamp(model, bubble);
    let stamp_width: usize = stamp.iter().map(Span::width).sum();
    // Time and ticks share the last line if they fit beside it.
    if lines.last().is_none_or(|last| width(last) + 2 + stamp_width > room) {
        lines.push(String::new());
    }
    let last = lines.len() - 1;
    let needed = |(at, line): (usize, &String)| match at == last {
        true if line.is_empty() => stamp_width,
        true => width(line) + 2 + stamp_width,
        false => width(line),
    };
    let inner = lines.iter().enumerate().map(needed).max().unwrap_or(0);
    let margin = if bubble.mine { columns.saturating_sub(inner + 2) } else { 0 };

    let mut rows = Vec::with_capacity(lines.len() + 1);
    for (at, line) in lines.iter().enumerate() {
        let style = Style::new().fg(TEXT).bg(back);
        let gap = inner - width(line) - if at == last { stamp_width } else { 0 };
        let text = format!(" {line}{}", " ".repeat(gap));
        let mut spans = vec![Span::raw(" ".repeat(margin)), Span::styled(text, style)];
        if at == last {
            spans.extend(stamp.iter().cloned());
        }
        spans.push(Span::styled(" ", style));
        let seq = bubble.seq.filter(|_| at == last && !bubble.mine);
        rows.push(ScreenLine { line: Line::from(spans), seq });
    }
    if let Some(why) = bubble.refused {
        rows.push(Line::styled(format!("not sent: {why} "), Style::new().fg(ALARM)).right_aligned().into());
    }
    rows
}

/// The time and, for one's own, how far it has come.
fn stamp(model: &Model, bubble: &Bubble<'_>) -> Vec<Span<'static>> {
    let back = Style::new().bg(if bubble.mine { MINE } else { THEIRS });
    let time = Span::styled(clock::time(bubble.ts), back.fg(FAINT));
    if !bubble.mine {
        return vec![time];
    }
    let (mark, colour) = match bubble.seq.map(|seq| model.tick_of(seq)) {
        None if bubble.refused.is_some() => (" ✗", ALARM),
        None => (" 🕓", FAINT),
        Some(Tick::Single) => (" ✓", FAINT),
        Some(Tick::Double) => (" ✓✓", FAINT),
        Some(Tick::Blue) => (" ✓✓", BLUE),
    };
    vec![time, Span::styled(mark, back.fg(colour).add_modifier(Modifier::BOLD))]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bluetick_client::{Event, Lost};
    use bluetick_protocol::{ConversationId, MessageFrame, MessageId, Presence, Sent, Ticks, Typing, UserId};
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;

    const NOON: u64 = 20_454 * 86_400_000 + 12 * 3_600_000;

    fn user(name: &str) -> UserId {
        UserId::new(name).unwrap()
    }

    fn model() -> Model {
        let (me, peer) = (user("alice"), user("bob"));
        let conversation = ConversationId::between(&me, &peer).unwrap();
        let mut model = Model::new(me.clone(), peer, conversation, NOON);
        model.event(Event::Connected { user_id: me, server_time: NOON });
        model.older = Older::Nothing;
        model
    }

    fn message(sender: &str, seq: Seq, body: &str, ts: u64) -> Event {
        let conversation_id = ConversationId::new("alice~bob").unwrap();
        Event::Message(MessageFrame {
            receiver: conversation_id.peer_of(&user(sender)).unwrap(),
            conversation_id,
            seq,
            message_id: MessageId(seq),
            client_msg_id: format!("m-{seq}").parse().unwrap(),
            sender: user(sender),
            body: body.into(),
            ts,
            attachment: None,
            meta: None,
        })
    }

    fn ticks(delivered: Seq, read: Seq) -> Event {
        Event::Ticks(Ticks {
            conversation_id: "alice~bob".parse().unwrap(),
            user_id: user("bob"),
            last_delivered_seq: delivered,
            last_read_seq: read,
        })
    }

    fn screen(model: &Model, columns: u16, rows: u16) -> (Vec<String>, DrawnView, Terminal<TestBackend>) {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        let mut shown = DrawnView::default();
        terminal.draw(|frame| shown = draw(frame, model)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| {
            let mut text = String::new();
            let mut x = 0;
            while x < columns {
                let symbol = buffer[(x, y)].symbol();
                text.push_str(symbol);
                x += (width(symbol) as u16).max(1);
            }
            text.trim_end().to_owned()
        };
        ((0..rows).map(line).collect(), shown, terminal)
    }

    #[test]
    fn a_conversation_is_drawn_from_both_sides() {
        let mut model = model();
        model.event(message("bob", 1, "hello alice", NOON - 86_400_000));
        model.event(message("alice", 2, "hi", NOON - 120_000));
        model.event(message("alice", 3, "how are you?", NOON - 60_000));
        model.event(ticks(3, 2));
        let (lines, shown, terminal) = screen(&model, 40, 14);
        let expected = [
            " ● bob                            alice",
            "",
            "",
            "",
            "      the conversation begins here",
            "             ── yesterday ──",
            " hello alice  12:00",
            "               ── today ──",
            "                           hi  11:58 ✓✓",
            "                 how are you?  11:59 ✓✓",
            " Enter send · PgUp older · Ctrl-O offlin",
        ];
        assert_eq!(lines[..11], expected);
        assert_eq!(shown, DrawnView { newest: Some(1), page: 9, scroll: 0, near_top: true });
        let colour = |y| terminal.backend().buffer()[(37, y)].fg;
        assert_eq!((colour(8), colour(9)), (BLUE, FAINT), "the first is read, the second delivered");
    }

    #[test]
    fn why_there_is_no_connection_is_on_the_screen_while_there_is_none() {
        let mut model = model();
        let why = Lost::Certificate("the server's certificate has expired".into());
        let wait = Some(Duration::from_secs(2));
        model.event(Event::Disconnected { will_retry_in: wait, why: Some(why) });
        let (lines, ..) = screen(&model, 60, 14);
        assert!(lines[1].contains("offline · next try in 2 s"), "{lines:#?}");
        assert!(lines[2].contains("the server's certificate has expired"), "{lines:#?}");
        assert!(lines[2..5].concat().contains("--ca-file"), "{lines:#?}");
        model.event(Event::Connected { user_id: "alice".parse().unwrap(), server_time: 0 });
        let (lines, ..) = screen(&model, 60, 14);
        assert!(!lines.concat().contains("certificate"), "{lines:#?}");
    }

    #[test]
    fn unsent_messages_wait_with_a_clock_until_they_are_sent() {
        let mut model = model();
        let wait = Some(Duration::from_millis(3_500));
        model.event(Event::Disconnected { will_retry_in: wait, why: None });
        model.posted("x-1".parse().unwrap(), "are you there");
        let (lines, ..) = screen(&model, 60, 12);
        assert!(lines[1].contains("offline · next try in 4 s · 1 message waits"), "{lines:#?}");
        assert!(lines[7].ends_with("are you there  12:00 🕓"), "{lines:#?}");

        model.event(Event::Sent(Sent {
            reference: None,
            client_msg_id: "x-1".parse().unwrap(),
            conversation_id: "alice~bob".parse().unwrap(),
            seq: 1,
            message_id: MessageId(1),
            ts: NOON + 60_000,
            duplicate: false,
        }));
        model.event(Event::Connected { user_id: user("alice"), server_time: 0 });
        let (lines, ..) = screen(&model, 60, 12);
        assert!(lines[7].ends_with("are you there  12:01 ✓"), "{lines:#?}");
    }

    #[test]
    fn the_header_tells_what_the_peer_does() {
        let mut model = model();
        model.event(Event::Presence(Presence { user_id: user("bob"), online: true, last_seen: None }));
        assert!(screen(&model, 60, 10).0[0].contains("● bob  online"));
        model.event(Event::Typing(Typing {
            conversation_id: "alice~bob".parse().unwrap(),
            user_id: user("bob"),
        }));
        assert!(screen(&model, 60, 10).0[0].contains("typing…"));
        model.now_ms += 10_000;
        let last_seen = Some(NOON - 3_600_000);
        model.event(Event::Presence(Presence { user_id: user("bob"), online: false, last_seen }));
        assert!(screen(&model, 60, 10).0[0].contains("last seen 11:00"));
    }

    #[test]
    fn scrolling_shows_what_is_older_and_reads_only_what_is_seen() {
        let mut model = model();
        for seq in 1..=40 {
            model.event(message("bob", seq, &format!("number {seq}"), NOON));
        }
        model.scroll = 10;
        let (lines, shown, _) = screen(&model, 40, 15);
        assert_eq!((shown.newest, shown.scroll, shown.near_top), (Some(30), 10, false));
        assert!(lines[10].starts_with(" number 30"), "{lines:#?}");
        model.event(message("bob", 41, "new", NOON));
        assert!(screen(&model, 40, 15).0[11].contains("1 new message"));
        model.scroll = usize::MAX;
        let (lines, shown, _) = screen(&model, 40, 15);
        assert!(lines[1].contains("the conversation begins here"), "{lines:#?}");
        assert!(shown.near_top && shown.scroll < 50);
    }

    #[test]
    fn wide_text_is_wrapped_and_escapes_do_nothing() {
        let mut model = model();
        model.event(message("bob", 1, "日本語のとても長いメッセージ", NOON));
        model.event(message("bob", 2, "\x1b[2Jgone?", NOON));
        let (lines, ..) = screen(&model, 24, 14);
        assert!(lines.iter().any(|line| line.trim() == "日本語のとても長"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("\u{fffd}[2Jgone?")), "{lines:#?}");
    }

    #[test]
    fn the_smallest_terminals_do_not_panic() {
        let mut model = model();
        model.event(message("bob", 1, "a message that is longer than the screen", NOON));
        model.posted("x-1".parse().unwrap(), "unsent 🕓");
        model.input.insert("日本語 something");
        for columns in 1..30 {
            for rows in 1..12 {
                screen(&model, columns, rows);
            }
        }
    }
}
