-- compatible_from: 9
-- The release that scanned each source. A lower release never overwrites the result of a higher one.

-- As numbers, {0,2,0}, since arrays compare number by number. Null: a release that did not record its number.
ALTER TABLE sources ADD COLUMN release integer[];

-- A program names its release in the setting `outcrop.release` of the transaction. One that names none is older than
-- all that do. Its result is refused here, because its statement cannot be changed any more. It has already written
-- findings by its own rules, so the next scan of a higher release starts anew.
CREATE FUNCTION keep_higher_release() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    writer integer[] := string_to_array(nullif(current_setting('outcrop.release', true), ''), '.')::integer[];
BEGIN
    IF TG_OP = 'INSERT' OR OLD.release IS NULL OR writer >= OLD.release THEN
        NEW.release := writer;
    ELSIF NEW.rules IS DISTINCT FROM OLD.rules OR NEW.tips IS DISTINCT FROM OLD.tips THEN
        NEW := OLD;
        NEW.changed := NULL;
        NEW.tips := '';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER sources_release BEFORE INSERT OR UPDATE OF tips ON sources
    FOR EACH ROW EXECUTE FUNCTION keep_higher_release();
