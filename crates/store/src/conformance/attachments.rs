//! `attachments`: announced, uploaded once, claimed by conversations, or collected.

use bluetick_protocol::S3Ref;

use super::fixture::{Fixture, START_MS};
use crate::{
    Announced, AttachmentRow, OverQuota, UploadQuota, UploadState, UploadUsage,
    testing::{conversation, user},
};

fn row(n: u8, at: u64) -> AttachmentRow {
    AttachmentRow {
        s3_ref: S3Ref::mint(at, [n; 10]),
        owner: user("alice"),
        name: format!("größe {n}.pdf"),
        mime: "application/pdf".into(),
        bytes: 1 << 40,
        sha256: "ab".repeat(32),
        upload_id: (n % 2 == 1).then(|| format!("upload-{n}")),
        state: UploadState::Expected,
        claimed: false,
    }
}

const DAY_MS: u64 = 86_400_000;

async fn announce(t: &Fixture, row: AttachmentRow) {
    let announced = t.store.attachments.announce(row, &UploadQuota::default()).await.unwrap();
    assert_eq!(announced, Announced::Done);
}

pub async fn an_attachment_is_kept_as_it_was_announced(t: &Fixture) {
    let attachments = &t.store.attachments;
    for n in 0..2 {
        let row = row(n, START_MS);
        assert_eq!(attachments.attachment(&row.s3_ref).await.unwrap(), None);
        announce(t, row.clone()).await;
        assert_eq!(attachments.attachment(&row.s3_ref).await.unwrap(), Some(row));
    }
}

pub async fn bytes_arrive_once(t: &Fixture) {
    let (attachments, row) = (&t.store.attachments, row(1, START_MS));
    assert!(!attachments.uploaded(&row.s3_ref).await.unwrap(), "nobody announced it");
    announce(t, row.clone()).await;
    assert!(!attachments.claim(&row.s3_ref, &conversation("alice~bob")).await.unwrap(), "not there yet");
    let arrivals = (0..4).map(|_| attachments.uploaded(&row.s3_ref));
    let arrived = futures_util::future::join_all(arrivals).await;
    assert_eq!(arrived.into_iter().filter(|arrived| *arrived.as_ref().unwrap()).count(), 1);
    let there = attachments.attachment(&row.s3_ref).await.unwrap().unwrap();
    assert_eq!(there, AttachmentRow { state: UploadState::Uploaded, ..row });
}

pub async fn claims_are_by_conversation(t: &Fixture) {
    let (attachments, row) = (&t.store.attachments, row(1, START_MS));
    let [bobs, carols] = ["alice~bob", "alice~carol"].map(conversation);
    announce(t, row.clone()).await;
    attachments.uploaded(&row.s3_ref).await.unwrap();
    assert!(!attachments.is_claimed_by(&row.s3_ref, &bobs).await.unwrap());
    for _ in 0..2 {
        assert!(attachments.claim(&row.s3_ref, &bobs).await.unwrap());
    }
    assert!(attachments.is_claimed_by(&row.s3_ref, &bobs).await.unwrap());
    assert!(!attachments.is_claimed_by(&row.s3_ref, &carols).await.unwrap());
    assert!(attachments.claim(&row.s3_ref, &carols).await.unwrap());
    assert!(attachments.is_claimed_by(&row.s3_ref, &carols).await.unwrap());
    assert!(attachments.attachment(&row.s3_ref).await.unwrap().unwrap().claimed);
}

pub async fn what_a_user_announced_is_found(t: &Fixture) {
    let attachments = &t.store.attachments;
    let [first, second, claimed] = [1, 2, 3].map(|n| row(n, START_MS + u64::from(n)));
    let others = AttachmentRow { owner: user("alice2"), ..row(4, START_MS) };
    assert_eq!(attachments.owned_by(&first.owner).await.unwrap(), []);
    for row in [&first, &second, &claimed, &others] {
        announce(t, row.clone()).await;
    }
    attachments.uploaded(&claimed.s3_ref).await.unwrap();
    attachments.claim(&claimed.s3_ref, &conversation("alice~bob")).await.unwrap();
    attachments.collect(&second.s3_ref).await.unwrap();
    let [first, second, claimed] = [first, second, claimed].map(|row| row.s3_ref);
    let owned = async || attachments.owned_by(&user("alice")).await.unwrap();
    assert_eq!(owned().await, [first.clone(), second.clone(), claimed.clone()]);
    for s3_ref in [&first, &first, &claimed] {
        attachments.forget(s3_ref).await.unwrap();
    }
    assert_eq!(owned().await, [second]);
    assert_eq!(attachments.owned_by(&others.owner).await.unwrap(), [others.s3_ref]);
}

pub async fn what_nobody_claimed_is_found_by_age(t: &Fixture) {
    let attachments = &t.store.attachments;
    let hour = 3_600_000;
    t.clock.set(START_MS + 40 * hour);
    for n in 0..6 {
        let row = row(n, START_MS + u64::from(n) * 5 * hour);
        announce(t, row.clone()).await;
        if n != 2 {
            attachments.uploaded(&row.s3_ref).await.unwrap();
        }
        if n == 1 {
            attachments.claim(&row.s3_ref, &conversation("alice~bob")).await.unwrap();
        }
    }
    let names = async |before: u64, limit: usize| -> Vec<String> {
        let found = attachments.unclaimed(before, limit).await.unwrap();
        found.into_iter().map(|row| row.name).collect()
    };
    let named = |ns: &[u8]| -> Vec<String> { ns.iter().map(|&n| row(n, 0).name).collect() };
    assert_eq!(names(START_MS, 10).await, named(&[]));
    assert_eq!(names(START_MS + 16 * hour, 10).await, named(&[0, 2, 3]));
    assert_eq!(names(START_MS + 16 * hour, 2).await, named(&[0, 2]));
    assert_eq!(names(START_MS + 39 * hour, 10).await, named(&[0, 2, 3, 4, 5]));
}

pub async fn what_is_collected_is_not_claimed(t: &Fixture) {
    let (attachments, bobs) = (&t.store.attachments, conversation("alice~bob"));
    let [claimed, loose] = [row(1, START_MS), row(2, START_MS)];
    for row in [&claimed, &loose] {
        announce(t, row.clone()).await;
        attachments.uploaded(&row.s3_ref).await.unwrap();
    }
    attachments.claim(&claimed.s3_ref, &bobs).await.unwrap();
    assert!(!attachments.collect(&claimed.s3_ref).await.unwrap(), "a message refers to it");
    for _ in 0..2 {
        assert!(attachments.collect(&loose.s3_ref).await.unwrap());
    }
    assert!(!attachments.claim(&loose.s3_ref, &bobs).await.unwrap());
    assert!(!attachments.uploaded(&loose.s3_ref).await.unwrap());
    // A collection that was cut off is found again.
    let found = attachments.unclaimed(START_MS + 1, 10).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].state, UploadState::Collecting);
    for row in [&claimed, &loose] {
        attachments.forget(&row.s3_ref).await.unwrap();
        assert_eq!(attachments.attachment(&row.s3_ref).await.unwrap(), None);
        assert!(!attachments.is_claimed_by(&row.s3_ref, &bobs).await.unwrap());
        assert!(!attachments.collect(&row.s3_ref).await.unwrap());
    }
    assert_eq!(attachments.unclaimed(START_MS + 1, 10).await.unwrap(), []);
}

/// A row of so many bytes, announced on a day that begins with this time.
fn sized(n: u8, at: u64, bytes: u64) -> AttachmentRow {
    AttachmentRow { bytes, ..row(n, at) }
}

async fn usage(t: &Fixture) -> (u64, u64) {
    let UploadUsage { total_bytes, day_bytes, .. } =
        t.store.attachments.upload_usage(&user("alice")).await.unwrap();
    (total_bytes, day_bytes)
}

pub async fn a_quota_is_charged_when_announced_and_given_back_when_forgotten(t: &Fixture) {
    let attachments = &t.store.attachments;
    let quota = UploadQuota { bytes_per_day: 100_000, bytes_total: 150_000 };
    let today = START_MS / DAY_MS * DAY_MS;
    let try_one = async |row: &AttachmentRow| attachments.announce(row.clone(), &quota).await.unwrap();
    assert_eq!(usage(t).await, (0, 0));
    let (first, small) = (sized(1, today, 90_000), sized(2, today + 1, 1));
    assert_eq!(try_one(&first).await, Announced::Done);
    assert_eq!(try_one(&small).await, Announced::Done);
    assert_eq!(usage(t).await, (94_096, 94_096), "a small file counts as a block");
    let more = sized(3, today + 2, 6_000);
    assert_eq!(try_one(&more).await, Announced::OverQuota(OverQuota::Day));
    assert_eq!(attachments.attachment(&more.s3_ref).await.unwrap(), None, "nothing was written");
    assert_eq!(attachments.owned_by(&user("alice")).await.unwrap().len(), 2);
    assert_eq!(usage(t).await, (94_096, 94_096));

    // Another user has a quota of their own.
    let others = AttachmentRow { owner: user("alice2"), ..sized(4, today, 90_000) };
    assert_eq!(try_one(&others).await, Announced::Done);

    // The day ends, the total stays.
    let tomorrow = today + DAY_MS;
    let next = sized(5, tomorrow, 50_000);
    assert_eq!(try_one(&next).await, Announced::Done);
    assert_eq!(usage(t).await, (144_096, 50_000));
    let last = sized(6, tomorrow + 1, 10_000);
    assert_eq!(try_one(&last).await, Announced::OverQuota(OverQuota::Total));
    for s3_ref in [&first.s3_ref, &first.s3_ref, &more.s3_ref] {
        attachments.forget(s3_ref).await.unwrap();
    }
    assert_eq!(usage(t).await, (54_096, 50_000), "given back once");
    assert_eq!(try_one(&last).await, Announced::Done);

    for row in [&small, &next, &last] {
        attachments.forget(&row.s3_ref).await.unwrap();
    }
    assert_eq!(usage(t).await, (0, 0));
    assert_eq!(attachments.upload_usage(&others.owner).await.unwrap().total_bytes, 90_000);
}

pub async fn a_quota_holds_under_concurrent_announcements(t: &Fixture) {
    let quota = UploadQuota { bytes_per_day: 0, bytes_total: 50_000 };
    let rows = (0..8).map(|n| sized(n, START_MS, 10_000));
    let announcing = rows.map(|row| async move { t.store.attachments.announce(row, &quota).await });
    let answers = futures_util::future::join_all(announcing).await;
    let taken = answers.iter().filter(|answer| matches!(answer, Ok(Announced::Done))).count() as u64;
    let mut owned = t.store.attachments.owned_by(&user("alice")).await.unwrap();
    assert_eq!(owned.len() as u64, taken);
    assert!((1..=5).contains(&taken), "{answers:?}");
    assert_eq!(usage(t).await, (10_000 * taken, 10_000 * taken));
    // Several servers may collect the same one.
    let one = owned.remove(0);
    let forgetting = (0..4).map(|_| t.store.attachments.forget(&one));
    for forgotten in futures_util::future::join_all(forgetting).await {
        forgotten.unwrap();
    }
    assert_eq!(usage(t).await.0, 10_000 * (taken - 1));
}

pub async fn without_a_quota_usage_is_counted_all_the_same(t: &Fixture) {
    for n in 0..3 {
        announce(t, sized(n, START_MS, 1 << 40)).await;
    }
    assert_eq!(usage(t).await, (3 << 40, 3 << 40));
    // What stands for an erased upload has no bytes and costs nobody anything.
    announce(t, sized(3, START_MS, 0)).await;
    assert_eq!(usage(t).await, (3 << 40, 3 << 40));
}
